"""The lowest layer, which every package uses: errors, paths, regular files, units, and a guard against two threads."""
