"""One run, in five packages and its records. A package imports only the packages below it (pyproject.toml)."""
