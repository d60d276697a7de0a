"""log.*: styles, flushing, the second metrics file, TensorBoard's text summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

import fake_runs
from event_files import tags_of
from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.framing import EventFiles
from mudd_core.run.store.run_folder import RunFolder


def test_rows_are_handed_over_every_so_many_steps(tmp_path: Path) -> None:
    board = EventFiles(RunFolder(tmp_path).board_folder, flush_every=4)
    seen = []
    for step in range(1, 9):
        board.append(step, {"train/loss": 1.0})
        files = tmp_path / "tensorboard"
        seen.append(len(tags_of(files).get("train/loss", {})) if any(files.iterdir()) else 0)
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8]
    board.close()


def test_the_second_file_of_rows_is_the_first(tmp_path: Path) -> None:
    word = f"log.metrics_file={tmp_path / 'more.jsonl'}"
    with fake_runs.make(tmp_path / "run", None, word, "train.stop_at=7") as trainer:
        trainer.fit()
    with fake_runs.make(tmp_path / "run", None, word) as trainer:
        trainer.fit()
    assert (tmp_path / "more.jsonl").read_bytes() == (tmp_path / "run" / "metrics.jsonl").read_bytes()


def test_a_second_file_of_something_else_or_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(UserError, match="metrics_file: expected a new file"):
        fake_runs.make(tmp_path / "run", None, f"log.metrics_file={tmp_path / 'notes.txt'}")
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
    with pytest.raises(SaveError, match="no/where"):
        fake_runs.make(tmp_path / "run2", None, f"log.metrics_file={tmp_path / 'no' / 'where'}")
    assert not (tmp_path / "run2").exists()


def test_ours_says_nothing_more(tmp_path: Path) -> None:
    with fake_runs.make(tmp_path) as trainer:
        trainer.fit()
    assert not [tag for tag in tags_of(tmp_path / "tensorboard") if not tag.startswith(("train/", "valid/"))]
