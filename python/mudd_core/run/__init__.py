"""One run, in five packages and its records; a package imports only those below it (pyproject.toml)."""
