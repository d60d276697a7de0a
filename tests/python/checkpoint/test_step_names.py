"""The names of steps and the index of a folder of weights are each read and written in one module."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint import weights_folder, whole_parts
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
    with pytest.raises(UserError, match=r"expected a folder named step-<n>, got .*/mine; rename the folder"):
        checkpoint.load_weights(tmp_path / "mine")
    (tmp_path / "mine").rename(tmp_path / "step-7")
    np.testing.assert_array_equal(checkpoint.load_weights(tmp_path / "step-7")["embed"], weights["embed"])


def test_an_index_reads_what_it_was_written_with(tmp_path: Path) -> None:
    assert weights_folder.indexed_files(tmp_path) is None
    for name in ("a.safetensors", "b.safetensors", "unnamed.safetensors"):
        (tmp_path / name).touch()
    text = weights_folder.index_text({"y": "b.safetensors", "x": "a.safetensors", "z": "a.safetensors"}, 12)
    (tmp_path / weights_folder.INDEX_NAME).write_text(text)
    assert weights_folder.indexed_files(tmp_path) == [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"names a file 'b.safetensors' that is not in"):
        weights_folder.indexed_files(tmp_path)
    (tmp_path / weights_folder.INDEX_NAME).write_text("[]")
    with pytest.raises(FormatError, match="not an index"):
        weights_folder.indexed_files(tmp_path)


def _file_of(path: Path, value: float) -> None:
    kept = path.with_name("kept")
    checkpoint.save(
        kept, 1, whole_parts({"w": np.full(2, value, np.float32)}), {}, config_hash="0" * 64, run_id="run"
    )
    written = next((kept / "step-1").glob("model*.safetensors"))
    written.rename(path)
    shutil.rmtree(kept)


@pytest.mark.parametrize(
    "others",
    [
        ["model-00001-of-00001.safetensors"],
        ["adapter_model.safetensors"],
        ["model.fp16.safetensors", "optimizer.safetensors", "consolidated.safetensors"],
    ],
)
@pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
def test_files_beside_the_model_are_not_its_weights(others: list[str], tmp_path: Path) -> None:
    _file_of(tmp_path / "model.safetensors", 1)
    for name in others:
        _file_of(tmp_path / name, 2)
    assert list(checkpoint.load_weights(tmp_path)["w"]) == [1, 1]
    # The same choice among files without a usual name.
    if "model-" not in others[0]:
        (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
        assert list(checkpoint.load_weights(tmp_path)["w"]) == [1, 1]


@pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
def test_the_whole_model_is_read_before_the_index_of_shards(tmp_path: Path) -> None:
    _file_of(tmp_path / "model.safetensors", 1)
    _file_of(tmp_path / "model-00001-of-00001.safetensors", 2)
    index = {"w": "model-00001-of-00001.safetensors", "gone": "model-00002-of-00002.safetensors"}
    (tmp_path / weights_folder.INDEX_NAME).write_text(weights_folder.index_text(index, 8))
    assert list(checkpoint.load_weights(tmp_path)["w"]) == [1, 1]


def test_a_path_in_a_run_finds_the_run_and_the_step() -> None:
    run = RunFolder(Path("runs/x"))
    for path, step in (("runs/x", None), ("runs/x/checkpoints", None), ("runs/x/checkpoints/step-7", 7)):
        assert RunFolder.holding(Path(path)) == (run, step)
    for path in ("runs/x/step-7", "runs/x/checkpoints/step-07", "checkpoint_7"):
        assert RunFolder.holding(Path(path)) == (RunFolder(Path(path)), None)
