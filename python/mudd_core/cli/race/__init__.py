"""The command race: recipes compared at equal minutes, each run with its own whole schedule."""
