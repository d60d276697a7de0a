"""train.profile: a file of whole steps in the trace-event format, which changes no bit and ends no run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import check_config
from mudd_core.run.report import trace
from mudd_core.run.report.progress import Progress
from tiny_run import CONFIG

STEPS = (
    "train.steps=6",
    "train.eval_every=3",
    "train.save_every=3",
    "train.micro_batch_size=2",
    "train.batch_size=4",
)


def run(workdir: Path, text: Path, *words: str, progress: Progress | None = None) -> mc.Trainer:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}")
    trainer = mc.Trainer(mc.load_config(CONFIG, [*data, *STEPS, *words]), workdir, progress=progress)
    trainer.fit()
    trainer.close()
    return trainer


def traces(workdir: Path) -> list[list[dict[str, Any]]]:
    """Return the events of every trace of a run, found by the path that TensorBoard's profile plugin uses."""
    files = sorted(workdir.glob("plugins/profile/*/*.trace.json.gz"))
    return [json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] for file in files]


def assert_nested(events: list[dict[str, Any]]) -> None:
    """Check that two spans of one track are disjoint or nested (within 0.01 us, because the values are rounded)."""
    open_ends: list[float] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + 0.01:
            open_ends.pop()
        assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1] + 0.01, event
        open_ends.append(event["ts"] + event["dur"])


def test_a_window_of_steps_is_traced_with_all_that_happens_in_it(tmp_path: Path, tiny_text: Path) -> None:
    plain = run(tmp_path / "plain", tiny_text)
    traced = run(tmp_path / "traced", tiny_text, "train.profile=2:5")
    assert traced.final_hash() == plain.final_hash()
    (events,) = traces(tmp_path / "traced")
    assert events[0]["ph"] == "M" and events[0]["args"] == {"name": "training loop"}
    spans = events[1:]
    for event in spans:
        assert event["ph"] == "X" and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"] and event["cat"]
    assert len({(event["pid"], event["tid"]) for event in spans}) == 1
    assert_nested(spans)
    steps = [event for event in spans if event["cat"] == "step"]
    assert [event["name"] for event in steps] == ["step 3", "step 4", "step 5"]
    for step in steps:  # two graph runs per step, each after a batch
        inside = [e for e in spans if e is not step and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        kinds = [event["cat"] for event in inside]
        names = [event["name"] for event in inside]
        assert names.count("update") == 1 and names[-1] == "update"
        assert (
            names.count("batch") == names.count("embedding") / 2 == 2
        )  # forward and backward of each graph run
        assert {"forward", "backward"} <= set(kinds)
        assert sum(e["dur"] for e in inside) <= step["dur"] + 0.01 * len(inside)
    between = [event["name"] for event in spans if event["name"] in ("evaluation", "save")]
    assert between == ["save", "evaluation"]  # belongs to step 3


@pytest.mark.parametrize(("first", "names"), [(1, ["step 4"]), (4, [])])
def test_a_resume_inside_or_behind_the_window_goes_on(
    tmp_path: Path, tiny_text: Path, first: int, names: list[str]
) -> None:
    run(tmp_path, tiny_text, "train.stop_at=3" if first == 1 else "train.stop_at=5")
    run(tmp_path, tiny_text, f"train.profile={first}:{first + 3 if first == 1 else 5}")
    found = [event["name"] for events in traces(tmp_path) for event in events if event.get("cat") == "step"]
    assert found == names


def test_a_trace_that_grows_too_long_ends_and_says_so(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 4)
    run(tmp_path, tiny_text, "train.profile=0:6", progress=Progress())
    (events,) = traces(tmp_path)
    steps = [event["name"] for event in events if event.get("cat") == "step"]
    assert steps == ["step 1"]
    assert "warning: the trace has 0 MiB; it ends here" in capsys.readouterr().out


def test_a_trace_that_cannot_be_written_leaves_the_run_alone(tmp_path: Path, tiny_text: Path) -> None:
    run(tmp_path, tiny_text, "train.stop_at=1")
    (tmp_path / "plugins").write_text("in the way")
    assert run(tmp_path, tiny_text, "train.profile=1:3").step_done == 6


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("5", "expected FROM:TO, two steps in order, got '5'"),
        ("4:2", "expected FROM:TO, two steps in order, got '4:2'"),
        ("a:b", "expected FROM:TO"),
        ("6:9", r"expected FROM below train.steps \(6\), got '6:9'"),
    ],
)
def test_a_window_that_is_none_is_refused(window: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"\[config\] train.profile: {message}"):
        check_config(mc.load_config(CONFIG, [*STEPS, f"train.profile={window}"]))
