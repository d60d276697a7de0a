"""The original programs, a folder each, and what their command lines share; program.py says what a program is."""
