"""Values passed between the other parts of a run; no module here reads or writes a file."""
