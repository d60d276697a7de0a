"""The original programs, a folder each, and what their command lines share; program.py has the interface."""
