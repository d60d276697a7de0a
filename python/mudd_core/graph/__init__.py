"""The recorder of planned graphs, and the tape that runs ops at once and walks back through them."""
