"""Fixtures of the tests of runs."""

from __future__ import annotations

import pytest

from mudd_core import _core


@pytest.fixture(autouse=True)
def no_requests() -> None:
    """Forget the stops that an earlier test requested."""
    _core.clear_requests()
