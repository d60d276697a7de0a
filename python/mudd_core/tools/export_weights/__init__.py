"""The command export: a run's weights as a folder for another program, or by our own names."""
