"""Tests of a parametrization over widths: coordinate check, wider is better, transfer of the learning rate."""
