"""The events of a start, a resume and an end record the machine, the program and the peak memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mudd_core as mc
from mudd_core.run.records.machine import commit_of
from places import ROOT
from tiny_run import TinyRun


def test_a_start_a_resume_and_their_ends_record_machine_and_memory(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=4", "train.stop_at=2"))
    assert run.finish(MUDD_MAX_ISA="portable") == 75, run.tail
    run.words = ("train.steps=4", "train.threads=2")
    run.finished()
    begun = [event for event in run.events() if event["event"] in ("started", "resumed")]
    assert [event["machine"]["level"] for event in begun] == ["portable", mc.isa()]
    assert [event["machine"]["threads"] for event in begun] == [1, 2]
    assert {event["machine"]["version"] for event in begun} == {mc.__version__}
    assert [event["command"][-1] for event in begun] == ["train.stop_at=2", "train.threads=2"]
    assert {len(event["machine"]["modules"]) for event in begun} == {64}
    ended = [event for event in run.events() if event["event"] in ("stopped", "finished")]
    assert all(10 << 20 < event["peak_memory"] < 4 << 30 for event in ended) and len(ended) == 2


def test_the_commit_is_the_one_of_git(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *names, *words], cwd=tmp_path / "one", check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "one").mkdir()
    assert commit_of(tmp_path / "one") == ""
    git("init", "-q", "-b", "main")
    assert commit_of(tmp_path / "one") == ""  # the repository has no commit yet
    git("commit", "-q", "--allow-empty", "-m", "first")
    first = git("rev-parse", "HEAD")[:12]
    assert commit_of(tmp_path / "one") == first
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "two"))
    assert commit_of(tmp_path / "two") == first
    git("pack-refs", "--all")
    assert commit_of(tmp_path / "one") == commit_of(tmp_path / "two") == first
    git("checkout", "-q", "--detach")
    assert commit_of(tmp_path / "one") == first


def test_a_checkout_of_this_program_has_a_commit() -> None:
    if (ROOT / ".git").exists():
        assert len(commit_of(ROOT)) == 12
