"""Saved runs and models as Python objects, read without a lock and without the training text."""
