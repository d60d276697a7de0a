"""The command tune: a base model and a file of conversations become a run, with numbers before and after."""
