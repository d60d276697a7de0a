"""The source files of a run: their locations, names and splits, and the documents in them."""
