"""Warnings at a start about threads, text and vocabulary: each is one line, printed once, and an event."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import mudd_core as mc
from mudd_core.run.build import start_warnings
from mudd_core.run.ranks import rank_cores as cores_of_groups
from mudd_core.run.ranks import ranks
from mudd_core.run.ranks.rank_cores import usable_cores
from mudd_core.run.ranks.ranks import Ranks
from tiny_run import TinyRun


def test_every_warning_is_one_line_and_in_the_events(tiny_text: Path, tmp_path: Path) -> None:
    threads = len(os.sched_getaffinity(0)) + 1
    words = ("data.tokenizer=bpe", "data.vocab_size=4000", "train.batch_size=64", "train.steps=400")
    words += (f"data.cache_dir={tmp_path / 'cache'}",)  # other tests use the session's common cache
    run = TinyRun(tmp_path / "run", tiny_text, (*words, f"train.threads={threads}", "train.stop_at=1"))
    run.stopped()
    found = [line for line in run.output.splitlines() if line.startswith("warning: ")]
    assert [line.partition("]")[0] for line in found] == [
        "warning: [train.threads",
        "warning: [data",
        "warning: [data.vocab_size",
    ], run.output
    assert f"{threads} threads" in found[0] and "so it is read" in found[1] and "4,000" in found[2]
    events = [event["text"] for event in run.events() if event["event"] == "warning"]
    assert [f"warning: {text}" for text in events] == found


@pytest.mark.parametrize(("steps", "warns"), [(400, False), (401, True)])
def test_epochs_are_counted(steps: int, warns: bool) -> None:
    config = mc.load_config("tiny.py", [f"train.steps={steps}", "train.batch_size=1", "train.seq_len=10"])
    cache = SimpleNamespace(train_tokens=1000, vocab_size=config.data.vocab_size, tokenizer=object())
    found = start_warnings.of_text(config, cache)
    assert bool(found) == warns and (
        not warns or "4,010 tokens, but the text has only 1,000, so it is read 4.0 times" in found[0]
    )


def test_a_vocabulary_of_another_tokenizer_is_not_asked_for() -> None:
    config = mc.load_config("tiny.py", ["data.tokenizer=bytes", "train.steps=1"])
    assert (
        start_warnings.of_text(
            config, SimpleNamespace(train_tokens=10**9, vocab_size=257, tokenizer=object())
        )
        == []
    )


def test_threads_are_compared_with_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_warnings, "usable_cores", lambda: 2)
    assert start_warnings.of_threads(2) == []
    (text,) = start_warnings.of_threads(3)
    assert "3 threads share 2 usable cores" in text and "train.threads=2" in text


def test_a_cpu_without_avx2_is_named() -> None:
    (text,) = start_warnings.of_level("portable", "x86_64")
    assert text.startswith("[isa] this CPU lacks AVX2") and "\n" not in text
    assert start_warnings.of_level("avx2", "x86_64") == start_warnings.of_level("portable", "aarch64") == []


def test_the_quota_of_a_control_group_counts(tmp_path: Path) -> None:
    mine = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path, "0::/a/b\n") == mine
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path, "0::/a/b\n") == mine
    (tmp_path / "a" / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path, "0::/a/b\n") == 1
    assert usable_cores(tmp_path, "1:cpuset:/\n") == mine


def test_a_quota_counts_in_whole_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for quota, cores in [("765000", 7), ("800000", 8), ("50000", 1), ("1700000", 16), ("max", 16)]:
        (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
        assert usable_cores(tmp_path, "0::/\n") == cores
    # docker --cpus=7.65 in one process without train.threads
    (tmp_path / "cpu.max").write_text("765000 100000\n")
    monkeypatch.setattr(ranks, "usable_cores", lambda: usable_cores(tmp_path, "0::/\n"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Ranks().threads(0) == 7 and Ranks().threads(9) == 9
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert Ranks().threads(0) == 0


def test_a_control_group_can_have_a_name_of_any_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    name = b"caf\xc3\xa9-\xff"
    (tmp_path / "cgroup").write_bytes(b"0::/" + name + b"\n")
    monkeypatch.setattr(cores_of_groups, "_OF_THIS_PROCESS", tmp_path / "cgroup")
    (tmp_path / os.fsdecode(name)).mkdir()
    (tmp_path / os.fsdecode(name) / "cpu.max").write_text("300000 100000\n")
    assert usable_cores(tmp_path) == 3


@pytest.mark.parametrize("name", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize("path", ["/docker/ab", "/"])
def test_the_quota_of_version_1_counts(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    groups = f"12:cpuset:/\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::/\n"
    assert usable_cores(tmp_path, groups) == 16
    (tmp_path / name).mkdir()  # a container sees its own cgroup as the root, and no folder of the host's path
    for quota, cores in [("-1", 16), ("765000", 7), ("10000", 1)]:
        (tmp_path / name / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / name / "cpu.cfs_period_us").write_text("100000\n")
        assert usable_cores(tmp_path, groups) == cores


@pytest.mark.parametrize(("steps", "warm_up", "warns"), [(20, 20, False), (21, 20, False), (19, 20, True)])
def test_a_warm_up_longer_than_the_run_is_named(steps: int, warm_up: int, warns: bool) -> None:
    words = [f"train.steps={steps}", f"optim.warmup_steps={warm_up}", "optim.lr=0.02"]
    found = start_warnings.of_warm_up(mc.load_config("tiny.py", words))
    assert bool(found) == warns
    if warns:
        assert "the warm-up of 20 updates is longer than the run of 19: the rate ends at 0.019" in found[0]
