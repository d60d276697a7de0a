"""Runs, records and statements of a machine with other instruction set levels: an ARM machine, seen from x86-64."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from diff_cases import WORDS, diff, trained
from launched import launched
from mudd_core import _core
from provenance_cases import exported, verified
from tiny_run import TinyRun

# A level that this machine does not know, and a CPU that has it.
LEVEL, CPU = ("neon", "ARM Neoverse-V2") if "neon" not in _core.isa_levels() else ("avx2", "AMD EPYC")


def moved(run: Path) -> None:
    """Change the machine that a run recorded in each of its events."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for event in events:
        if "machine" in event:
            event["machine"] |= {"level": LEVEL, "cpu": CPU}
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/here and runs/there, a run of the other machine."""
    folder = tmp_path_factory.mktemp("machines")
    trained(folder, tiny_text, "here")
    shutil.copytree(folder / "runs" / "here", folder / "runs" / "there")
    moved(folder / "runs" / "there")
    return folder


def test_diff_and_compare_print_both_levels(folder: Path) -> None:
    text = diff(folder, "here", "there", code=0)
    assert (
        f"level * level {_core.isa()} {LEVEL}" in text and "Loss and gradient norm have the same bits" in text
    )
    done = launched(folder, "compare", "runs/here", "runs/there")
    assert done.returncode == 0 and LEVEL in done.stdout and CPU in done.stdout, done.stdout + done.stderr
    assert launched(folder, "report", "runs/there").returncode == 0


def test_two_records_print_both_levels(folder: Path) -> None:
    done = launched(folder, "diff", "--record", "runs/there", "--step=2", "--to=there.jsonl")
    assert done.returncode == 0, done.stderr
    head, rows = (folder / "there.jsonl").read_text().split("\n", 1)
    (folder / "arm.jsonl").write_text(json.dumps(json.loads(head) | {"isa": LEVEL}) + "\n" + rows)
    text = diff(folder, "there.jsonl", "arm.jsonl", code=0)
    assert f"level * {_core.isa()} {LEVEL}" in text and "* does not affect the training in fp32" in text


def test_a_run_of_the_other_machine_is_resumed(folder: Path, tiny_text: Path) -> None:
    run = TinyRun(folder / "runs" / "half", tiny_text, (*WORDS, "train.stop_at=6"))
    assert run.finish_here() == 75
    moved(run.workdir)
    run.words = WORDS
    run.trained()
    assert (
        run.summary()["final_hash"]
        == json.loads((folder / "runs" / "here" / "summary.json").read_text())["final_hash"]
    )
    assert [event["machine"]["level"] for event in run.events() if "machine" in event] == [LEVEL, _core.isa()]


def test_its_weights_are_derived_again_here(
    folder: Path, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = TinyRun(folder / "runs" / "there", tiny_text, WORDS)
    to = exported(run, tmp_path / "out")
    (start,) = json.loads((to / "provenance.json").read_text())["predicate"]["run"]["starts"]
    assert start["level"] == LEVEL
    cache = tiny_text.parent / "cache"
    code, out, err = verified(capsys, to, "--train", f"--data={tiny_text}", f"data.cache_dir={cache}")
    assert code == 0 and "exported here, all files have the same bytes" in out, out + err
