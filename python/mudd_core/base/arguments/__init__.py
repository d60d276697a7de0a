"""Arguments and names that a user of the Python API passes: checks, and errors with hints."""
