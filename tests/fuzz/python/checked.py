"""The assertion of the fuzz targets."""

from __future__ import annotations


def require(holds: bool, what: str) -> None:
    """Raise AssertionError if the condition is false, also under -O."""
    if not holds:
        raise AssertionError(what)
