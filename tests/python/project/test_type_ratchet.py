"""The number of lines without a real type may only fall (tests/type_ratchet.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import type_ratchet

MODULE = '''"""An object of Any kind."""

from typing import Any, cast


def read(value: object, kind: "list[Any]") -> int:
    made = object()
    object.__setattr__(made, "cast", value)
    return cast(int, value)  # type: ignore[return-value]
'''


def test_the_package_has_no_more_loose_lines_than_before() -> None:
    assert type_ratchet.risen(type_ratchet.counts(), type_ratchet.kept()) == []


def test_any_object_cast_and_ignored_lines_count() -> None:
    assert type_ratchet.loose_lines(MODULE) == {1, 3, 6, 9}


def test_a_rise_names_the_files_that_rose() -> None:
    before = {"a.py": 2, "b.py": 1}
    assert type_ratchet.risen({"a.py": 1, "b.py": 2}, before) == []  # moved, but not more
    rose = ["b.py: 3 lines without a real type, 1 before", "c.py: 1 lines without a real type, 0 before"]
    assert type_ratchet.risen({"a.py": 2, "b.py": 3, "c.py": 1}, before) == rose


def test_the_command_fails_on_a_rise_and_asks_to_write_a_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text(MODULE)
    monkeypatch.setattr(type_ratchet, "KEPT", tmp_path / "kept.txt")
    monkeypatch.setattr(type_ratchet, "counts", lambda: {"a.py": len(type_ratchet.loose_lines(MODULE))})
    assert type_ratchet.main(["--write"]) == 0 and type_ratchet.main([]) == 0
    assert capsys.readouterr().out == ""
    type_ratchet.KEPT.write_text("3 a.py\n")
    assert type_ratchet.main([]) == 1 and "a.py: 4 lines" in capsys.readouterr().out
    type_ratchet.KEPT.write_text("5 a.py\n")
    assert type_ratchet.main([]) == 0 and "--write" in capsys.readouterr().out
