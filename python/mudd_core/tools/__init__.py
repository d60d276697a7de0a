"""Commands other than training: comparisons, checks, plots and profiles. `launch.py TOOL --help` describes each."""
