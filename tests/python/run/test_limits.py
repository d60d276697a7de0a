"""The sentence about the one thing that limits a run, for six planted causes and for a healthy run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launched import launched
from mudd_core.cli.ending import ending
from mudd_core.config import load_config
from mudd_core.run.ranks.load import LoadMeter, allowed_cores
from mudd_core.run.records.events import Summary
from mudd_core.run.records.phases import Phase
from mudd_core.run.report.limits import limit_of
from mudd_core.run.report.page.run_page import run_page
from mudd_core.run.store.run_folder import RunFolder
from page_runs import records_of, update, validation, write_run

HEALTHY = {"data": 0.01, "forward": 1.0, "backward": 2.0, "update": 0.15, "log": 0.01}
LOAD = {"seconds": 5.0, "cores": 1.9, "others": 0.05, "bound": 2, "allowed": 2, "threads": 2, "stalled": 0.0}


def folder_of(
    path: Path, phases: dict[str, float], load: dict[str, float], *words: str, **row: Any
) -> RunFolder:
    """Write a run of ten entries with these phases, in addition to the healthy ones, and this load."""
    every = {**dict.fromkeys(map(str, Phase), 0.0), **HEALTHY, **phases}
    entries = [update(step, phases=every, load={**LOAD, **load}, **row) for step in range(10, 110, 10)]
    return write_run(path, [*entries, validation(100, 2.0) | {"targets": 8 * 128 * 300}], (), *words)


STREAM = ("data.cache=stream", "data.pipeline=pack", "data.tokenizer=bytes")

CAUSES: dict[str, tuple[dict[str, float], dict[str, float], tuple[str, ...], str]] = {
    "slow disk": (
        {"data": 3.0},
        {"read": 2.0**20},
        (),
        "data: 49 % of the time waits for the disk (1.000 MiB a second); set data.cache_dir to a folder on a faster "
        "disk",
    ),
    "slow disk of a stream": (
        {"data": 3.0},
        {"workers": 0.05},
        STREAM,
        "data: 49 % of the time waits for the files of data.path; copy them to a faster disk",
    ),
    "tokenizing": (
        {"data": 1.4},
        {"workers": 1.0, "allowed": 8, "bound": 8},
        STREAM,
        "data: 31 % of the time waits for tokenizing; data.workers=2",
    ),
    "tokenizing without free cores": (
        {"data": 1.4},
        {"workers": 1.0},
        STREAM,
        "data: 31 % of the time waits for tokenizing; data.cache=full tokenizes before the training",
    ),
    "one bound core": (
        {},
        {"cores": 1.0, "bound": 1, "threads": 2},
        (),
        "cores: 50 % of the time is lost because 2 threads share 1 core; train.threads=1, or start without taskset",
    ),
    "bound to one core of two": (
        {},
        {"cores": 1.0, "bound": 1, "threads": 1},
        (),
        "cores: 50 % of the time could be saved with all 2 cores: this process is bound to 1 core; start it without "
        "taskset",
    ),
    "a busy machine": (
        {},
        {"cores": 1.0, "others": 1.0},
        (),
        "cores: 50 % of the time is lost to other processes, which take 1.0 of 2 cores; end them",
    ),
    "tiny batch": (
        {"forward": 0.2, "backward": 0.4, "update": 0.3, "log": 1.2},
        {},
        ("train.batch_size=1",),
        "batch: 71 % of the time goes to the update and its loop, whatever the batch; train.batch_size=32",
    ),
    "tiny batch of a small model": (
        {},
        {},
        ("train.batch_size=2", "train.seq_len=32"),
        "batch: 89 % of the time is lost because 64 tokens at once reach 5 % of the peak; train.batch_size=16",
    ),
    "tiny micro-batch": (
        {},
        {},
        ("train.batch_size=8", "train.seq_len=32", "train.micro_batch_size=1"),
        "batch: 89 % of the time is lost because 32 tokens at once reach 5 % of the peak; train.micro_batch_size=8",
    ),
    "throttled link": (
        {"messages": 2.0},
        {"least_wait": 0.38},
        (),
        "messages: 39 % of the time waits for messages between nodes, 19 % more is hidden; train.batch_size=16 "
        "computes longer",
    ),
    "throttled link, mesh.zero=3": (
        {"messages": 2.0},
        {"least_wait": 0.38},
        ("mesh.zero=3",),
        "messages: 39 % of the time waits for messages between nodes, 19 % more is hidden; mesh.zero=1 sends "
        "fewer bytes, if the model fits",
    ),
    "a slow rank": (
        {"messages": 2.0},
        {"least_wait": 0.01},
        (),
        "messages: 39 % of the time waits for the slowest rank; give every rank as many free cores (train.threads, "
        "--bind-to none)",
    ),
    "long validation": (
        {"evaluation": 2.0},
        {},
        ("train.eval_every=10", "train.steps=100"),
        "evaluation: 39 % of the time validates or samples; train.eval_every=120",
    ),
    "long validation at the end": (
        {"evaluation": 2.0},
        {},
        ("train.eval_every=0", "eval.max_batches=0"),
        "evaluation: 39 % of the time validates or samples; eval.max_batches=25",
    ),
    "memory that swaps": (
        {},
        {"stalled": 0.45, "swapped": 3 * 2.0**30},
        ("train.batch_size=8",),
        "memory: 45 % of the time waits for memory (3.000 GiB of it in swap); train.micro_batch_size=4",
    ),
    # Measured: a run of tiny.py whose pages were sent to a swap file (process_madvise), while other programs ran.
    "memory that swaps on a busy machine": (
        {"forward": 3.82, "backward": 4.30, "update": 0.54, "log": 0.96, "save": 0.34},
        {"cores": 0.312, "others": 1.686, "stalled": 0.443, "swapped": 60.22 * 2.0**20},
        ("train.batch_size=8",),
        "memory: 44 % of the time waits for memory (60.22 MiB of it in swap); train.micro_batch_size=4",
    ),
    "slow saves": (
        {"save": 2.0},
        {},
        ("train.save_every=10",),
        "save: 39 % of the time writes checkpoints; train.save_every=120",
    ),
    "slow logs": (
        {"log": 2.0},
        {},
        ("train.log_every=1",),
        "log: 39 % of the time writes log entries; train.log_every=13",
    ),
    "a slow callback": (
        {"callback": 2.0},
        {},
        (),
        "callback: 39 % of the time runs the caller's code between the updates; call it less often",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named_with_the_setting_that_helps(cause: str, tmp_path: Path) -> None:
    phases, load, words, sentence = CAUSES[cause]
    row = {"hidden": 1.0} if "messages" in phases else {}
    if words and words[-1].startswith(("train.seq_len", "train.micro")):
        row = {"peak_share": 0.05}
    folder = folder_of(tmp_path / "run", phases, load, *words, **row)
    assert limit_of(folder, records_of(folder).config) == sentence


def test_no_sentence_where_nothing_limits(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", {}, {})
    config = records_of(folder).config
    assert limit_of(folder, config) == ""
    # measured: a mixture on tiny.py, in percent of the time, while other programs took a tenth of a core
    measured = {"forward": 24.3, "backward": 67.8, "update": 2.5, "evaluation": 1.3, "save": 0.6, "log": 3.2}
    mixture = folder_of(tmp_path / "mixture", measured, {"cores": 1.841, "others": 0.103})
    assert limit_of(mixture, config) == ""
    short = write_run(tmp_path / "short", [update(1, phases={"data": 9.0}), update(2, phases={"data": 0.5})])
    assert limit_of(short, config) == ""  # a run of some seconds is mostly its start
    old = write_run(tmp_path / "old", [update(step) for step in range(1, 9)])
    assert limit_of(old, config) == ""
    assert "Where the time goes" not in run_page(records_of(old))


@pytest.mark.parametrize("phase", Phase)
def test_a_run_that_is_in_one_phase_all_the_time(phase: Phase, tmp_path: Path) -> None:
    rows = [
        update(step, phases={phase: 10.0}, load={**LOAD, "workers": 1.0, "allowed": 8}) for step in (1, 2, 3)
    ]
    folder = write_run(tmp_path / "run", rows)
    found = limit_of(folder, load_config("tiny.py"))
    assert ": 100 % of the time " in found or phase in (Phase.FORWARD, Phase.BACKWARD)


@pytest.mark.parametrize("wrong", ["x", None, [], 1e300, float("nan"), {"data": {}}, True])
def test_wrong_values_in_a_log_are_no_time(wrong: Any, tmp_path: Path) -> None:
    rows = [update(step, phases={"data": wrong}, load=wrong, hidden=wrong) for step in (1, 2, 3)]
    rows += [update(4, phases=wrong)]
    folder = write_run(tmp_path / "run", rows, [{"event": "finished", "phases": wrong}])
    assert limit_of(folder, load_config("tiny.py")) == ""


def test_the_page_report_and_end_of_a_run_say_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", {"evaluation": 2.0}, {}, "train.eval_every=10", "train.steps=100")
    sentence = "evaluation: 39 % of the time validates or samples; train.eval_every=120"
    page = run_page(records_of(folder))
    assert sentence in page and "Where the time goes" in page and "Time by phase" in page
    done = launched(tmp_path, "report", str(folder.path))
    assert f"\nlimit: {sentence}\n" in done.stdout
    assert (
        "\ntime: backward 38.7%, evaluation 38.7%, forward 19.3%, update 2.9%, data 0.2%, log 0.2%\n"
        in done.stdout
    )


def test_the_end_of_a_run_has_a_line_for_the_limit(tmp_path: Path) -> None:
    summary = Summary("x", 1, 1, 1, 1.0, None, None, 0, 1.0, "")
    request: Any = SimpleNamespace(options={}, source=None)
    assert "\n  limit    data: 31 %\n" in ending(summary, RunFolder(tmp_path), request, None, "data: 31 %")
    assert "limit" not in ending(summary, RunFolder(tmp_path), request, None)


def test_the_load_is_read_from_the_files_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    (tmp_path / "pressure").mkdir()
    (tmp_path / "self").mkdir()
    pressure, io = tmp_path / "pressure/memory", tmp_path / "self/io"

    def write(stalled: int, read: int) -> None:
        pressure.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\nfull avg10=0 total=7\n")
        io.write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: 9\n")

    write(1_000_000, 0)
    (tmp_path / "self/status").write_text("Name:\tx\nVmSwap:\t    2048 kB\n")
    meter = LoadMeter(alone=True, proc=tmp_path)
    now = 100.4
    assert meter.take() == {}  # too short to measure
    now = 104.0
    write(3_000_000, 4 << 20)
    load = meter.take()
    assert (load["seconds"], load["swapped"], load["read"], load["others"]) == (4.0, 2 << 20, 1 << 20, 0.0)
    assert load["stalled"] >= 0.5 and load["bound"] == load["allowed"]
    assert LoadMeter(alone=False, proc=tmp_path)._others is None


@pytest.mark.parametrize("file", ["a/cpuset.cpus.effective", "cpuset/a/cpuset.effective_cpus"])
def test_the_cores_of_a_control_group(file: str, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cpuset").write_text("/a\n")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("0-3,8,10-11\n")
    assert allowed_cores(tmp_path, tmp_path) == 7
    (tmp_path / file).write_text("\n")
    assert allowed_cores(tmp_path, tmp_path) == allowed_cores(tmp_path / "none") >= 1
