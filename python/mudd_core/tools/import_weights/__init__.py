"""The command import: makes another program's weights a run."""
