"""Differences of values as text."""

from __future__ import annotations


def ulps_text(ulps: float) -> str:
    """Return a difference in units of the last place, as text."""
    return f"{ulps:,.6g} unit{'s' * (ulps != 1)} of the last place"
