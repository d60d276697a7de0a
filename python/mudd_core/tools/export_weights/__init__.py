"""The command export: a run's weights as a folder for another program, or with mudd_core's names."""
