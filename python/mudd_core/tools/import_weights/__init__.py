"""The command import: another program's weights as the first checkpoint of a run."""
