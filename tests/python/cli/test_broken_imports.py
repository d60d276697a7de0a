"""Imports that are killed, meet a full disk, or run twice at once: no run starts with random weights."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mudd_core import checkpoint
from mudd_core.base.errors import UserError
from mudd_core.cli import entry
from mudd_core.cli.argv import Invocation
from mudd_core.cli.entry import main
from mudd_core.cli.tune import before_after, command
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.import_weights import command as import_command
from tune_folders import write_given

DRIVER = Path(__file__).parents[1] / "killed_imports.py"
EPOCH = ("train.epochs=1",)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_given(tmp_path_factory.mktemp("given"), 12)


@pytest.fixture(scope="module")
def imported(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported") / "run"
    import_command.main([str(given / "base"), f"--workdir={folder}"])
    return folder


def codes_of(*words: str) -> tuple[list[int], str]:
    """Return the exit codes of the driver's children, and its standard error."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert done.returncode == 0, done.stderr
    return [
        int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("exit ")
    ], done.stderr


def weights_of(folder: Path) -> bytes:
    return (folder / "checkpoints/step-0/model-00001-of-00001.safetensors").read_bytes().split(b"}}", 1)[1]


def tune(given: Path, run: Path, *words: str) -> int:
    places = [f"--base={given / 'base'}", f"--data={given / 'chat.jsonl'}", f"--workdir={run}"]
    return main(["tune", *places, *(words or EPOCH)])


def test_a_kill_before_each_write_leaves_a_whole_run_or_none(
    given: Path, imported: Path, tmp_path: Path
) -> None:
    codes, errors = codes_of("kill", str(given / "base"), str(tmp_path))
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1) and codes[-1] == 0, errors
    assert len(codes) > 20
    for number in range(1, len(codes)):
        folder = tmp_path / str(number)
        if (folder / "config.json").exists():
            assert checkpoint.list_steps(folder / "checkpoints") == [0], number
        again = main(["import", str(given / "base"), f"--workdir={folder}"])
        assert again == 0 or (again == 2 and checkpoint.list_steps(folder / "checkpoints") == [0]), number
        assert weights_of(folder) == weights_of(imported)
        names = {entry.name for entry in folder.iterdir()}
        assert names == {entry.name for entry in imported.iterdir()}, number


def test_a_disk_that_fills_up_leaves_nothing(given: Path, tmp_path: Path) -> None:
    codes, errors = codes_of("limit", str(given / "base"), str(tmp_path), "16", "2000", "8000", "40000")
    assert codes == [74] * 4
    assert list(tmp_path.iterdir()) == []
    assert errors.count("type the same command to start again") == 4
    assert "older steps" not in errors and "keep_last" not in errors and ".fetch" not in errors


def test_too_little_space_names_no_steps_that_are_not_there(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mudd_core._core.free_space", lambda _: 5)
    assert main(["import", str(given / "base"), f"--workdir={tmp_path / 'run'}"]) == 74
    error = capsys.readouterr().err
    assert "has 5 free. Free some space;" in error
    assert "older steps" not in error and "keep_last" not in error


@pytest.mark.parametrize("missing", [(), ("imported",), ("imported", "run.json")])
def test_a_folder_of_an_older_import_without_weights_is_refused_and_repaired(
    given: Path,
    imported: Path,
    missing: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(imported, run)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints" / "step-0.tmp-12345678").mkdir(parents=True)  # left by the writer that was killed
    for name in missing:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    data = [f"data.path={given / 'chat.jsonl'}", f"data.cache_dir={tmp_path / 'cache'}"]
    assert main([f"--config={run}/config.json", f"--workdir={run}", *data]) == 2
    error = capsys.readouterr().err
    assert "belongs to an interrupted import" in error and "resume it as it was" not in error
    assert not (tmp_path / "cache").exists()  # rejected before the data are read
    assert main(["import", str(given / "base"), f"--workdir={run}"]) == 0
    assert weights_of(run) == weights_of(imported)
    assert (run / "imported").is_dir()


def test_an_import_leaves_a_run_that_has_begun_alone(
    given: Path, imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_bytes((imported / "config.json").read_bytes())
    (run / "run.json").write_text('{"run_id": "1", "started": "2026", "vocab_size": 256}')
    assert main(["import", str(given / "base"), f"--workdir={run}"]) == 2
    assert "already contains a run" in capsys.readouterr().err


def test_a_second_tune_waits_for_nothing_and_removes_nothing(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    half = run / "base" / "checkpoints" / "step-0.tmp-12345678"
    half.mkdir(parents=True)  # the first command does the import
    with FolderLock(RunFolder(run)):
        assert tune(given, run) == 2
    assert "is in use by" in capsys.readouterr().err
    assert half.is_dir()
    (run / "base" / "config.json").write_text("{}")
    with FolderLock(RunFolder(run / "base")):
        assert tune(given, run) == 2
    assert "base is in use" in capsys.readouterr().err
    assert half.is_dir()


def test_a_second_tune_before_the_training_replaces_nothing(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Start a second tune while the run's lock is free, between the preparation and the training."""
    run, train = tmp_path / "run", entry.run
    names = ("tune.json", "tune-arguments.json", "base/config.json")

    def between(asked: Invocation) -> int:
        monkeypatch.undo()
        kept = [(run / name).read_bytes() for name in names]
        FolderLock(RunFolder(run)).close()
        assert tune(given, run, "train.steps=1") == 2
        assert "in use by another tune command, which is about to train" in capsys.readouterr().err
        assert [(run / name).read_bytes() for name in names] == kept
        return train(asked)

    monkeypatch.setattr(command, "entry", SimpleNamespace(run=between))
    assert tune(given, run) == 0
    assert tune(given, run) == 0  # the second tune replaces nothing after the training


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_finished_tune_without_checkpoints_trains_again(
    given: Path, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, words = tmp_path / "run", (*EPOCH, f"tune.method={method}")
    assert tune(given, run, *words) == 0
    weights = (run / "summary.json").read_text().partition('"final_hash"')[2]
    capsys.readouterr()
    shutil.rmtree(run / "checkpoints")
    assert tune(given, run, *words) == 0
    assert "was finished, but its checkpoints are missing, so it trains again" in capsys.readouterr().err
    assert (run / "summary.json").read_text().partition('"final_hash"')[2] == weights
    assert checkpoint.list_steps(run / "checkpoints")
    assert tune(given, run, *words) == 0
    assert "is finished." in capsys.readouterr().out


def test_a_half_base_is_made_again_and_a_stop_in_the_answers_is_a_stop(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (run / "base" / "checkpoints").mkdir(parents=True)
    (run / "base" / "run.json").write_text("{}")
    held_out = before_after._held_out

    def terminated(*values: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return held_out(*values)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(before_after, "_held_out", terminated)
        assert tune(given, run) == 75
    shown = capsys.readouterr().out
    assert "stopped by SIGTERM" in shown and "  after " not in shown
    assert tune(given, run) == 0
    assert "  after " in capsys.readouterr().out


def test_files_of_others_in_the_place_of_a_base_stay(given: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "base" / "checkpoints").mkdir(parents=True)
    (run / "base" / "thesis.txt").write_text("mine")
    assert tune(given, run) == 2
    assert (run / "base" / "thesis.txt").read_text() == "mine"
    with pytest.raises(UserError, match="holds other files"):
        FolderLock(RunFolder(run / "base"))
