"""The command tune: train a base model on a file of conversations, with metrics before and after."""
