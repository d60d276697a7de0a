"""Values that the other parts of a run pass to each other; no module here reads or writes a file."""
