"""The training loop: updates, validations, saves, recovery, stops and the end of a run."""
