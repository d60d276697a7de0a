"""The original programs, one folder each, and the code that their command lines share; program.py defines the
interface.
"""
