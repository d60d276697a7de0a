"""Every key, flag and variable of the original programs' commands, a row each; one module for each grammar."""

from mudd_core.config.keys.row import Fate, Key, Row, mapped, noted, pending, refused

__all__ = ["Fate", "Key", "Row", "mapped", "noted", "pending", "refused"]
