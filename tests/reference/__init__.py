"""Independent references: NumPy operations and PyTorch models that the tests compare mudd_core with."""
