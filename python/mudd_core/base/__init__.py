"""The ground of every package: errors, paths, regular files, units, one thread at a time."""
