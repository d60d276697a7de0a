"""The command `slurm`: print the job script of a training."""
