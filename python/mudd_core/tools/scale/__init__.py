"""Predict the cost of training on several machines (docs/scale.md)."""
