"""only_eval=True of MaxText's commands on an existing run, in a fresh process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from event_files import events_of
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import RunFolder
from test_maxtext_evaluation import EVALUATION_TAGS, Typed, typed

__all__ = ["typed"]


def test_the_evaluation_of_a_run_is_in_its_tensorboard(typed: Typed, tmp_path: Path) -> None:
    """Check the step, which is the checkpoint's as in the program. The files of the run stay, and it may train
    further.
    """
    run = tmp_path / "output"
    assert typed("run_name=output", "train.stop_at=2").returncode == 75
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name[0] != "."}
    ended = typed("run_name=output", "only_eval=True")
    assert ended.returncode == 0, ended.stderr
    row = json.loads((run / "evaluations.jsonl").read_text())
    assert "Write step 2 eval loss: " in ended.stdout and "step 2: validation loss " in ended.stdout
    assert [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("eval_step: ")] == [
        "1",
        "2",
    ]
    (added,) = set((run / "tensorboard").iterdir()) - set(before)
    (tmp_path / "added").mkdir()
    added.rename(tmp_path / "added" / added.name)
    events = events_of(tmp_path / "added")
    values = {value.tag: value.simple_value for event in events for value in event.summary.value}
    assert values.keys() == EVALUATION_TAGS and {event.step for event in events[1:]} == {2}
    assert values["learning/eval_loss"] == pytest.approx(row["val_loss"])
    assert {path: path.read_bytes() for path in before} == before
    assert typed("run_name=output", "train.stop_at=0").returncode == 0


def test_the_evaluation_of_a_run_in_use_says_that_it_leaves_no_tags(typed: Typed, tmp_path: Path) -> None:
    run = tmp_path / "output"
    assert typed("run_name=output").returncode == 0
    with FolderLock(RunFolder(run)):
        ended = typed("run_name=output", "only_eval=True")
    assert ended.returncode == 0 and "step 4: validation loss " in ended.stdout
    assert "warning: the evaluation is not in TensorBoard: " in ended.stderr
    assert not (run / "evaluations.jsonl").exists()
