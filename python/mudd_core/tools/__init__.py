"""Programs beside training: comparisons, checks, pictures and profiles. `launch.py TOOL --help` tells about each."""
