"""The names of steps and the index of a folder of weights: each is read and written in one module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint import weights_index, whole_parts
from mudd_core.checkpoint.steps import step_name, step_of
from mudd_core.run.build.start_source import run_and_step
from mudd_core.run.store.run_folder import RunFolder


@pytest.mark.parametrize("step", [0, 7, 10, 123456789012345678])
def test_a_step_is_read_from_its_own_name(step: int) -> None:
    assert step_of(step_name(step)) == step


@pytest.mark.parametrize(
    "name", ["7", "step-", "step-07", "step-7.old", "step--1", "step-1e3", "step-7\n", "checkpoint_7"]
)
def test_other_names_are_no_steps(name: str, tmp_path: Path) -> None:
    assert step_of(name) is None
    path = tmp_path / "checkpoints" / name
    assert run_and_step(path, state=False) == (None, -1)


def test_a_renamed_step_says_to_rename_it_back(tmp_path: Path) -> None:
    weights = {"embed": np.ones((2, 3), np.float32)}
    checkpoint.save(tmp_path, 7, whole_parts(weights), {}, config_hash="0" * 64, run_id="run")
    (tmp_path / "step-7").rename(tmp_path / "mine")
    with pytest.raises(UserError, match=r"under its own name step-<n>, got .*/mine; rename the folder"):
        checkpoint.load_weights(tmp_path / "mine")
    (tmp_path / "mine").rename(tmp_path / "step-7")
    np.testing.assert_array_equal(checkpoint.load_weights(tmp_path / "step-7")["embed"], weights["embed"])


def test_an_index_reads_what_it_was_written_with(tmp_path: Path) -> None:
    assert weights_index.indexed_files(tmp_path) is None
    for name in ("a.safetensors", "b.safetensors", "unnamed.safetensors"):
        (tmp_path / name).touch()
    text = weights_index.index_text({"y": "b.safetensors", "x": "a.safetensors", "z": "a.safetensors"}, 12)
    (tmp_path / weights_index.NAME).write_text(text)
    assert weights_index.indexed_files(tmp_path) == [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"names a file 'b.safetensors' that is not in"):
        weights_index.indexed_files(tmp_path)
    (tmp_path / weights_index.NAME).write_text("[]")
    with pytest.raises(FormatError, match="not an index"):
        weights_index.indexed_files(tmp_path)


def test_a_path_in_a_run_finds_the_run_and_the_step() -> None:
    run = RunFolder(Path("runs/x"))
    for path, step in (("runs/x", None), ("runs/x/checkpoints", None), ("runs/x/checkpoints/step-7", 7)):
        assert RunFolder.holding(Path(path)) == (run, step)
    for path in ("runs/x/step-7", "runs/x/checkpoints/step-07", "checkpoint_7"):
        assert RunFolder.holding(Path(path)) == (RunFolder(Path(path)), None)
