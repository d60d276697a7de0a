"""The files that a run reads: their places, names and splits, and the documents in them."""
