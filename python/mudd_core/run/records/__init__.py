"""Values that the other parts of a run pass to each other. No module here reads or writes a file."""
