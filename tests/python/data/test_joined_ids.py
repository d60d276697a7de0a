"""The pipeline `ids` on records with lists of ids: their joined file, and what a start does with a damaged one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from id_cases import VOCAB, config_of
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.data.pipelines import RowShape, joined_ids, prepare

SHAPE = RowShape(8, 2, 5)
ROWS = [list(range(1, 30)), [], list(range(30, 99)), [7] * 40]


def write(path: Path, rows: list[list[int]], column: str = "input_ids") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({column: row}) + "\n" for row in rows))
    return path


def joined_file(tmp_path: Path) -> Path:
    return next((tmp_path / "a.jsonl-cache" / joined_ids.FOLDER).glob("*.u32"))


def inputs(path: Path, *words: str) -> np.ndarray:
    data = prepare(config_of("ids", path, *words))
    return np.asarray(data.rows("train", SHAPE).arrays(0, 9)["inputs"])


def test_records_train_like_one_list_of_ids(tmp_path: Path) -> None:
    np.array([id_ for row in ROWS for id_ in row], "<u2").tofile(tmp_path / "a.u16")
    wanted = inputs(tmp_path / "a.u16")
    assert np.array_equal(inputs(write(tmp_path / "a.jsonl", ROWS)), wanted)
    assert np.array_equal(inputs(write(tmp_path / "b.jsonl", ROWS, "ids"), "data.column=ids"), wanted)
    with pytest.raises(UserError, match=r"expected a column of .*, got 'input_ids'"):
        inputs(tmp_path / "b.jsonl")


def test_a_damaged_or_old_joined_file_is_written_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    wanted = inputs(path)
    kept = joined_file(tmp_path)
    before = kept.stat().st_mtime_ns
    assert np.array_equal(inputs(path), wanted)
    assert kept.stat().st_mtime_ns == before
    data = bytearray(kept.read_bytes())
    data[40] ^= 1
    kept.write_bytes(data)
    assert np.array_equal(inputs(path), wanted)
    kept.with_suffix(".sha256").unlink()
    assert np.array_equal(inputs(path), wanted)
    assert not np.array_equal(inputs(write(path, ROWS[::-1])), wanted)


@pytest.mark.parametrize("wrong", [VOCAB, -1])
def test_an_id_outside_the_vocabulary_leaves_no_file(wrong: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS, [wrong]])
    with pytest.raises(FormatError, match=f"record 4: expected ids from 0 to 99, got {wrong}"):
        prepare(config_of("ids", path))
    assert os.listdir(tmp_path / "a.jsonl-cache" / joined_ids.FOLDER) == []


def test_a_rejected_write_is_a_save_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match="No space left on device; free space there"):
        prepare(config_of("ids", write(tmp_path / "a.jsonl", ROWS)))
    assert os.listdir(tmp_path / "a.jsonl-cache" / joined_ids.FOLDER) == []
