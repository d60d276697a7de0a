"""Runs on a mixture: one order and one hash for ranks, micro-batches, stops and kills; phases on a resume."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launched import called, launched
from mixture_cases import WORDS, files_of, write_sources
from places import HELPERS, ROOT

MIX = "data.mix=web:0.7,code:0.2,own:0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("mixed_runs"))


def words_of(folder: Path, name: str, *more: str) -> list[str]:
    words = [f"--config={HELPERS / 'tiny_run_config.py'}", f"--workdir={folder / 'runs' / name}", MIX]
    words += [*files_of(folder), f"data.cache_dir={folder / 'cache'}", "data.mix_phases=20:code:1,own:1"]
    return [*words, "train.steps=40", "train.seq_len=16", "train.eval_every=20", "train.save_every=10", *more]


def hash_of(folder: Path, name: str) -> str:
    return str(json.loads((folder / "runs" / name / "summary.json").read_text())["final_hash"])


@pytest.fixture(scope="module")
def whole(folder: Path) -> str:
    """Return the hash of an uninterrupted run."""
    done = launched(folder, *words_of(folder, "whole"))
    assert done.returncode == 0, done.stderr
    assert "the mixture web:0.7,code:0.2,own:0.1" in done.stdout
    return hash_of(folder, "whole")


@pytest.mark.parametrize("more", [["train.micro_batch_size=2"], ["--ranks=2"], ["train.threads=2"]])
def test_micro_batches_ranks_and_threads_have_the_same_hash(
    folder: Path, whole: str, more: list[str]
) -> None:
    name = more[0].strip("-").partition("=")[0]
    done = launched(folder, *words_of(folder, name, *more))
    assert done.returncode == 0, done.stderr
    assert hash_of(folder, name) == whole


def test_a_stopped_and_a_killed_run_have_the_same_hash(folder: Path, whole: str) -> None:
    words = words_of(folder, "stopped")
    assert launched(folder, *words, "train.stop_at=13").returncode == 75
    done = launched(folder, *words)
    assert done.returncode == 0, done.stderr
    assert hash_of(folder, "stopped") == whole
    words = words_of(folder, "killed", "train.save_every=3")
    with (folder / "killed.log").open("w") as log:
        run = subprocess.Popen(
            [sys.executable, str(ROOT / "launch.py"), *words], cwd=folder, stdout=log, stderr=log
        )
        while run.poll() is None and not list(
            (folder / "runs" / "killed").glob("checkpoints/*/manifest.json")
        ):
            time.sleep(0.01)
        run.kill()
        run.wait()
    done = launched(folder, *words)
    assert done.returncode == 0, done.stderr
    assert hash_of(folder, "killed") == whole


def test_a_stream_that_is_stopped_has_the_hash_of_the_caches(folder: Path) -> None:
    words = ["data.pipeline=pack", "train.steps=30"]
    for name in WORDS:
        lines = [json.dumps({"text": file.read_text()}) for file in sorted((folder / name).glob("*.txt"))]
        for split, part in (("train", lines[5:]), ("valid", lines[:5])):
            (folder / f"{name}-{split}.jsonl").write_text("\n".join(part) + "\n")
        words += [f"data.sources.{name}.path={folder / f'{name}-train.jsonl'}"]
        words += [f"data.sources.{name}.eval_path={folder / f'{name}-valid.jsonl'}"]
    for name, more in (("streamed", ["data.cache=stream", "train.stop_at=11"]), ("cached", [])):
        own = [*words_of(folder, name, *words), f"data.cache_dir={folder / name}"]
        code = called(folder, *own, *more).returncode
        assert code == (75 if more else 0)
        assert not more or called(folder, *own, more[0]).returncode == 0
    assert hash_of(folder, "streamed") == hash_of(folder, "cached")


def test_only_phases_after_the_saved_step_change_on_a_resume(folder: Path) -> None:
    words = words_of(folder, "phases")
    assert called(folder, *words, "train.stop_at=25").returncode == 75
    early = called(folder, *words, "data.mix_phases=24:code:1")
    assert early.returncode == 2
    assert "data.mix_phases: expected the same phases before step 25, the saved step" in early.stderr
    later = called(folder, *words, "data.mix_phases=20:code:1,own:1;30:web:1")
    assert later.returncode == 0, later.stderr
    assert "with data.mix_phases=20:code:1,own:1;30:web:1" in later.stdout
    events = (folder / "runs" / "phases" / "events.jsonl").read_text()
    assert "20:code:1,own:1;30:web:1" in events
    saved = json.loads((folder / "runs" / "phases" / "config.json").read_text())
    assert saved["data"]["mix_phases"] == "20:code:1,own:1;30:web:1"
    assert hash_of(folder, "phases")


def test_a_run_until_the_first_source_ends(folder: Path) -> None:
    done = called(
        folder, *words_of(folder, "first", "data.mix_until=first", "data.mix_phases=", "train.steps=4000")
    )
    assert done.returncode == 0, done.stderr
    assert "(data.mix_until=first): the run ends at step" in done.stdout + done.stderr
    assert "; the data end here (data.mix_until)" in done.stdout
    again = called(folder, f"--workdir={folder / 'runs' / 'first'}")
    said, command = again.stdout.splitlines()[:2]
    assert " is finished. To train " in said and "data.epochs" not in command
    assert called(folder, *shlex.split(command)[2:], "--plan").returncode == 0
    # A later phase could continue the mixture, so the run is opened again.
    later = called(folder, f"--workdir={folder / 'runs' / 'first'}", "data.mix_phases=4000:web:1")
    assert later.returncode == 0 and " is finished." not in later.stdout, later.stderr
    words = [word for word in words_of(folder, "epochs") if not word.startswith("train.steps")]
    epochs = called(folder, *words, "data.mix_until=first", "data.mix_phases=", "train.epochs=1")
    assert epochs.returncode == 0, epochs.stderr
    steps = [
        json.loads((folder / "runs" / name / "summary.json").read_text())["step"]
        for name in ("first", "epochs")
    ]
    assert steps[0] == steps[1] > 0


def test_data_show_names_the_source_of_each_row(folder: Path) -> None:
    words = [word for word in words_of(folder, "show") if not word.startswith("--workdir")]
    shown = called(folder, "data", "show", *words, "--step=2")
    assert shown.returncode == 0, shown.stderr
    heads = [line for line in shown.stdout.splitlines() if line.startswith("sample ")]
    assert len(heads) == 8
    assert heads[1] == "sample 9, row 1 of step 2, source own"
    assert {head.rpartition(" ")[2] for head in heads} == {"web", "code", "own"}


def test_a_mistake_ends_with_code_2_before_anything_is_written(folder: Path) -> None:
    wrong = launched(folder, *words_of(folder, "wrong", "data.mix=web:1,cod:1"))
    assert wrong.returncode == 2
    assert "did you mean 'code'?" in wrong.stderr
    assert not (folder / "runs" / "wrong").exists()
