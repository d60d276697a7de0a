"""Command lines and config files of the original programs, resolved to ordinary configs (keys: config/keys)."""
