"""The training loop: updates, validations, saves, recovery, and how a run ends."""
