"""The ranks of a run: shared decisions, their cores, the watch for a hung one, the comparison of weights."""
