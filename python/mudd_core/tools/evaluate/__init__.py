"""The command `evaluate`: benchmarks of lm-evaluation-harness on a run or a model folder."""
