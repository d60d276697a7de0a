"""What a run keeps on disk and in a storage: the work directory, its files, checkpoints and logs."""
