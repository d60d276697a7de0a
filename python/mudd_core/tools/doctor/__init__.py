"""`launch.py doctor`: checks of this machine, one module per subject, each finding with the line that mends it."""
