"""A run's data on disk and in remote storage: the work directory, its files, its checkpoints and its logs."""
