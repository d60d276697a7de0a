"""The command sweep: one run for each combination of the listed values of config fields."""
