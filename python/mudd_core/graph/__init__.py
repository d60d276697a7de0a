"""What ops are recorded into: the recorder of a graph and the tape of a notebook."""
