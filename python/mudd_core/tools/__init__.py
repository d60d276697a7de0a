"""Programs beside training: comparisons, checks, pictures and profiles. `launch.py TOOL --help` describes each."""
