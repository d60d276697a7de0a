"""The codes of errors: one table, and the option --explain-error that prints an entry of it."""
