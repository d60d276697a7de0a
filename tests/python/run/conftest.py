"""Fixtures for tests of runs."""

from __future__ import annotations

import pytest

from mudd_core import _core


@pytest.fixture(autouse=True)
def no_requests() -> None:
    """Clear the stop requests of an earlier test."""
    _core.clear_requests()
