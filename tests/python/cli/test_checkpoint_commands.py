"""A checkpoint that four ranks wrote in slices: every command that reads it joins the slices."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from exported_files import exported_files
from mudd_core import checkpoint
from mudd_core.checkpoint import load_weights
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.cli import main
from mudd_core.dist import Comm
from mudd_core.run.build.start_source import read_source
from rank_runs import on_ranks
from rank_states import WORLDS
from tiny_run import TinyRun


@pytest.fixture(scope="module")
def runs(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyRun, TinyRun]:
    """Return two copies of one stopped run: saved by one process, and sharded across four ranks."""
    folder = tmp_path_factory.mktemp("runs")
    whole = TinyRun(folder / "whole", tiny_text, ("train.stop_at=8",))
    whole.stopped()
    sliced = TinyRun(folder / "sliced", tiny_text, whole.words)
    shutil.copytree(whole.workdir, sliced.workdir)
    cut_up(sliced.checkpoints)
    return whole, sliced


def cut_up(directory: Path) -> None:
    found = checkpoint.load_step(directory, 8)
    shutil.rmtree(found.path)

    def work(comm: Comm) -> None:
        checkpoint.save(
            directory,
            8,
            WORLDS["4 in parts"].parts(found.tensors, comm),
            found.state,
            config_hash=found.config_hash,
            run_id=found.run_id,
            comm=comm,
        )

    on_ranks(work, 4)
    assert len(read_manifest(found.path).tensors["embed"].slices) == 4


def test_weights_and_states_are_joined(runs: tuple[TinyRun, TinyRun]) -> None:
    sources = [read_source(run.workdir, state=True).tensors for run in runs]
    weights = [load_weights(run.checkpoints / "step-8") for run in runs]
    for one, two in (sources, weights):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


def test_export_writes_the_same_files(runs: tuple[TinyRun, TinyRun], tmp_path: Path) -> None:
    cache = f"data.cache_dir={runs[0].text.parent / 'cache'}"
    for number, run in enumerate(runs):
        assert main(["export", f"--workdir={run.workdir}", f"--to={tmp_path / str(number)}", cache]) == 0
    files = [exported_files(tmp_path / name) for name in "01"]
    assert files[0] == files[1] and "model.safetensors" in files[0]


def test_eval_and_generate_print_the_same(
    runs: tuple[TinyRun, TinyRun], capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for run in runs:
        words = [f"--workdir={run.workdir}", f"data.path={run.text}"]
        words.append(f"data.cache_dir={run.text.parent / 'cache'}")
        assert main(["generate", *words, "--prompt=ma"]) == 0
        assert main(["eval", *words]) == 0
        told.append(capsys.readouterr().out.replace(str(run.workdir), "DIR"))
    assert told[0] == told[1] and told[0]


def test_one_process_goes_on_from_slices(runs: tuple[TinyRun, TinyRun]) -> None:
    hashes = []
    for run in runs:
        run.words = ("train.stop_at=16",)
        run.stopped()
        assert "resumes at step 8 " in run.output
        hashes.append(run.summary()["final_hash"])
    assert hashes[0] == hashes[1] and runs[0].rows() == runs[1].rows()
