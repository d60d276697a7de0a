"""Stored results have one line for each measured row, and json.loads reads the written file."""

from __future__ import annotations

import json
import sys

import pytest

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import row_json  # noqa: E402

RESULTS = ROOT / "bench" / "results"
# Number of levels above a row, by the prefix of the file's name.
LEVELS = {"data_": 2, "ranks_": 3, "same_bits": 3, "tables_": 2}


def test_a_row_is_one_line() -> None:
    value = {
        "cpu": "A",
        "steps": {"9M": {"speed": {"ours": 2.5}}, "55M": {"speed": {}}},
        "none": {},
        "list": [[1, 2]],
    }
    text = row_json.text(value, 2)
    assert json.loads(text) == value
    assert text.splitlines() == [
        "{",
        ' "cpu": "A",',
        ' "steps": {',
        '  "9M": {"speed": {"ours": 2.5}},',
        '  "55M": {"speed": {}}',
        " },",
        ' "none": {},',
        ' "list": [',
        "  [1, 2]",
        " ]",
        "}",
    ]


@pytest.mark.parametrize("name", [file.name for file in sorted(RESULTS.glob("*.json"))])
def test_kept_results_are_written_so(name: str) -> None:
    text = (RESULTS / name).read_text()
    levels = next(count for start, count in LEVELS.items() if name.startswith(start))
    assert row_json.text(json.loads(text), levels) == text
