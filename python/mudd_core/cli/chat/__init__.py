"""The command `chat`: conversations with a model at a terminal or through a pipe."""
