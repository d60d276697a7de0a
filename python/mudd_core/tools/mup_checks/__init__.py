"""Tests of a parametrisation over widths: coordinate check, wider is better, transfer of the learning rate."""
