"""The committed stubs of the extension modules match the built modules."""

from __future__ import annotations

import pytest

import stubs


def test_committed_stubs_are_current() -> None:
    for name, text in stubs.generate().items():
        committed = stubs.PACKAGE / name
        if not committed.is_file() or committed.read_text() != text:
            pytest.fail(f"{name} is out of date: ./run stubs")
