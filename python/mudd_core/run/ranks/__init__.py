"""The ranks of a run: shared decisions, cores, the watch for hung ranks, and the comparison of weights."""
