"""The page of a run: its contents for each kind of run, and strings of a run that are never parsed as HTML."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import pytest

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import load_config
from mudd_core.run.report.page.elements import clock_text
from mudd_core.run.report.page.heat_map import MOST_NUMBERS, heat_map
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.run_page import Status, run_page, status_of, write_page
from mudd_core.run.report.page.series import COLUMNS, Series, kept_rows
from mudd_core.run.report.page.time_line import lanes_of
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.run_folder import LOCK
from page_runs import records_of, update, validation, write_run

HOSTILE = "<script>alert(1)\"'&"  # without a slash, so that it can be a name
CLOSING = "</script><script>alert(1)</script>"


class Tags(HTMLParser):
    """A parser that counts the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert not any(name.startswith("on") or name in ("src", "srcset") for name, _ in attrs), attrs


def tags(page: str) -> dict[str, int]:
    found = Tags()
    found.feed(page)
    found.close()
    return found.count


def charts(page: str) -> list[dict[str, object]]:
    """Return the data of each chart for page.js."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', page)
    return [json.loads(text) for text in found]


def test_the_page_has_the_curves_of_updates_and_validations(tmp_path: Path) -> None:
    rows = [*(update(step) for step in range(10, 100, 10)), validation(50, 3.0), validation(90, 2.5)]
    page = run_page(records_of(write_run(tmp_path / "run", rows)))
    for title in ("Loss", "Speed", "Gradient norm", "Learning rate", "Config"):
        assert title in page
    loss = charts(page)[0]["series"]
    assert isinstance(loss, list)
    assert [one["name"] for one in loss] == ["training", "validation", "best validation"]
    assert loss[1]["values"] == [3, 2.5] and loss[1]["tokens"] == [51200, 92160]
    assert "<td>90</td><td>2.5000</td><td>1.2500</td>" in page


def test_the_config_begins_with_what_differs_from_the_defaults_of_the_family(tmp_path: Path) -> None:
    config = load_config("mixtral/tiny.py", ["optim.lr=0.0042"])
    page = run_page(records_of(write_run(tmp_path / "run", [], config=config)))
    first, _, whole = page.partition("The whole config")
    assert "<td>optim.lr</td><td>0.0042</td><td>0.001</td>" in first and "default of mixtral" in first
    assert "<td>optim.beta1</td>" not in first and "beta1=" in whole


def test_many_validations_are_a_line(tmp_path: Path) -> None:
    rows = [update(1000), *(validation(step, 3.0) for step in range(1, 301))]
    page = run_page(records_of(write_run(tmp_path / "run", rows)))
    assert 'class="line c1"' in page and "the last 200 of 300" in page


def test_text_of_a_run_is_never_read_as_html(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [update(1)], (), "name=" + HOSTILE, "data.path=" + HOSTILE)
    page = run_page(records_of(folder))
    assert HOSTILE not in page and "&lt;script&gt;alert(1)" in page
    plain = run_page(records_of(write_run(tmp_path / "b", [update(1)])))
    assert tags(page)["script"] == tags(plain)["script"]


def test_text_in_the_data_of_a_chart_cannot_end_it() -> None:
    places = {name: np.array([0.0, 1.0]) for name in ("steps", "tokens", "minutes")}
    chart = line_chart(CLOSING, [Series(CLOSING, places, np.array([1.0, 2.0]))], note=CLOSING)
    cells = heat_map(CLOSING, np.ones((1, 1)), rows=[CLOSING], columns=[CLOSING], unit=CLOSING)
    assert tags(chart)["script"] == tags(cells)["script"] == 1
    assert charts(cells)[0]["rows"] == [CLOSING]


def test_thinning_keeps_the_extremes_of_every_column() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=100_000)
    values[51_234], values[51_235], values[70_000] = 1e6, -1e6, np.nan
    rows = kept_rows(np.arange(100_000.0), values)
    assert {0, 51_234, 51_235, 99_999} <= set(rows.tolist()) and len(rows) <= 2 * COLUMNS + 2
    assert np.all(np.diff(rows) > 0) and np.isfinite(values[rows]).all()


def test_thinning_breaks_a_line_where_a_column_has_no_value() -> None:
    values = np.ones(10_000)
    values[4000:6000] = np.nan
    rows = kept_rows(np.arange(10_000.0), values)
    assert np.isnan(values[rows]).sum() > 50 and kept_rows(np.zeros(0), np.zeros(0)).size == 0


def test_a_heat_map_keeps_its_last_step_and_its_size() -> None:
    values = np.random.default_rng(0).random((500, 12, 64))
    page = heat_map(
        "Load",
        values,
        rows=[f"layer {n}" for n in range(12)],
        columns=[f"expert {n}" for n in range(64)],
        steps=list(range(500)),
        middle=0.5,
    )
    steps = charts(page)[0]["steps"]
    assert isinstance(steps, list) and steps[-1] == 499 and len(steps) == MOST_NUMBERS // (12 * 64)
    assert len(page) < 200_000


def test_a_run_of_a_million_steps_stays_below_a_megabyte(tmp_path: Path) -> None:
    steps = np.arange(1, 1_000_001)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=len(steps))
    noise[123_456] = 50.0  # a spike of one step
    columns: dict[str, list[float]] = {
        "step": steps.tolist(),
        "tokens": (steps * 524_288).tolist(),
        "seconds": (steps * 1.25).tolist(),
        **{
            name: (noise + place).tolist()
            for place, name in enumerate(
                ("loss", "lr", "grad_norm", "tokens_per_second", "peak_share", "accuracy")
            )
        },
    }
    saves = [{"event": "saved", "step": step, "peak_memory": step} for step in range(1000, 1_000_001, 1000)]
    skips = [
        {"event": "skipped", "step": step, "reason": "a spike: " + "x" * 80} for step in range(7, 900_000, 90)
    ]
    folder = write_run(tmp_path / "run", [], [*saves, *skips])
    records = replace(records_of(folder), updates=Metrics.of_columns(columns))
    page = run_page(records)
    assert len(page.encode()) < 600_000  # the rest of the limit is for the family's heat maps
    loss = charts(page)[0]["series"]
    assert isinstance(loss, list) and 50.0 in loss[0]["values"]


@pytest.mark.parametrize(
    "events, summary, status",
    [
        (["started", "finished"], {"stopped": None}, Status.FINISHED),
        (["started", "saved", "stopped"], {"stopped": "SIGTERM"}, Status.STOPPED),
        (["started", "stopped", "resumed", "saved"], {"stopped": "SIGTERM"}, Status.INTERRUPTED),
        ([], {"stopped": "request"}, Status.STOPPED),  # without events.jsonl
        ([], {"stopped": None}, Status.FINISHED),
        ([], None, Status.INTERRUPTED),
    ],
)
def test_the_status_is_that_of_the_last_start_or_end(
    events: list[str], summary: JsonObject | None, status: Status, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", [update(1)], [{"event": name, "step": 1} for name in events])
    if summary is not None:
        folder.summary_file.write_text(json.dumps(summary))
    page = run_page(records_of(folder))
    assert f'<span class="status {status}">{status}</span>' in page


def test_a_run_trains_while_the_process_in_its_lock_lives(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [update(1)], [{"event": "started"}])
    lock = folder.path / LOCK
    lock.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": ""}))
    assert status_of(records_of(folder)) == Status.RUNNING
    ended = subprocess.Popen(["true"])
    ended.wait()
    lock.write_text(json.dumps({"pid": ended.pid, "host": socket.gethostname(), "since": ""}))
    assert status_of(records_of(folder)) == Status.INTERRUPTED
    lock.write_text(json.dumps({"pid": 1, "host": "another", "since": ""}))
    assert status_of(records_of(folder)) == Status.RUNNING  # the run has just written an entry
    os.utime(folder.metrics_file, (0, 0))
    assert status_of(records_of(folder)) == Status.INTERRUPTED


def test_a_run_without_newer_facts_shows_its_checkpoints_and_skips(tmp_path: Path) -> None:
    rows = [update(step, **({"skipped": True} if step == 3 else {})) for step in range(1, 6)]
    folder = write_run(tmp_path / "run", rows, [{"event": "started"}])
    folder.step_folder(4).mkdir(parents=True)
    folder.run_file.unlink()
    lanes = lanes_of(records_of(folder))
    assert [moment.step for moment in lanes["saves"]] == [4]
    assert [moment.step for moment in lanes["skips"]] == [3]
    assert "Machine" not in run_page(records_of(folder))


@pytest.mark.parametrize("rows", [[], [validation(0, 3.0)], [update(1, None, val=None), update(2)]])
def test_a_run_with_few_rows_has_a_page(rows: list[JsonObject], tmp_path: Path) -> None:
    assert "Config" in run_page(records_of(write_run(tmp_path / "run", rows)))


def test_rows_that_are_not_finite_break_the_curve(tmp_path: Path) -> None:
    rows = [{**update(step), **({"loss": None} if step == 3 else {})} for step in range(1, 6)]
    page = run_page(records_of(write_run(tmp_path / "run", rows)))
    loss = charts(page)[0]["series"]
    assert isinstance(loss, list) and loss[0]["values"][2] is None
    curve = re.search(r'class="line c0" d="([^"]+)"', page)
    assert curve is not None and curve[1].count("M") == 2


def test_damaged_events_are_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [update(1)])
    folder.events_file.write_text(
        '{"event": "started"}\n[1]\n{"event": 3}\n{"event": "saved", "step": "x"}\n{"ev'
    )
    assert len(records_of(folder).events) == 2
    assert "Time line" in run_page(records_of(folder))


def best_in(page: str) -> tuple[object, object]:
    """Return the step and the loss of the dot at the best validation."""
    series = charts(page)[0]["series"]
    assert isinstance(series, list)
    (best,) = (one for one in series if one["name"] == "best validation")
    return best["steps"], best["values"]


def test_the_best_validation_and_an_end_by_patience_are_marked(tmp_path: Path) -> None:
    rows = [
        *(update(step) for step in range(1, 13)),
        validation(4, 3.0),
        validation(8, 2.5),
        validation(12, 2.75),
    ]
    end = {"event": "finished", "step": 12, "reason": "train.patience"}
    folder = write_run(tmp_path / "run", rows, [{"event": "started"}, end])
    page = run_page(records_of(folder))
    assert best_in(page) == ([8], [2.5]) and "out of patience" not in page  # in progress: the recorded ones
    ending: JsonObject = {
        "step": 12,
        "best_step": 6,
        "best_val_loss": 2.25,
        "since_best": 1,
        "out_of_patience": True,
    }
    folder.summary_file.write_text(json.dumps(ending))
    page = run_page(records_of(folder))
    assert best_in(page) == ([6], [2.25]) and ">at step 6<" in page
    assert "<dt>out of patience</dt><dd>1</dd>" in page and "ended by train.patience" in page
    folder.summary_file.write_text(json.dumps({**ending, "step": 11}))  # the run has continued since
    page = run_page(records_of(folder))
    assert best_in(page) == ([8], [2.5]) and "out of patience" not in page


def test_the_scale_of_a_heat_map_is_below_zero_only_where_a_value_is() -> None:
    def ends(values: list[float], middle: float | None) -> list[str]:
        names = [str(place) for place in range(len(values))]
        figure = heat_map("Load", np.array([values]), rows=["layer 0"], columns=names, middle=middle)
        scale = re.search(r'<div class="scale.*?</div>', figure)
        assert scale is not None
        return re.findall(r"<span>(.*?) ?</span>", scale[0])

    # expert load: 1 is a fair part, and one expert may get the parts of four
    assert ends([0.0, 4.0], 1.0) == ["0", "4"]
    assert ends([2.0, 4.0], None) == ["0", "4"]
    assert ends([-0.5, 2.0], 0.0) == ["-0.5", "2"]


def test_the_step_is_that_of_the_last_row_or_checkpoint(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [validation(5, 3.0)])
    assert "<dd>5</dd>" in run_page(records_of(folder))
    folder.step_folder(7).mkdir(parents=True)
    assert "<dd>7</dd>" in run_page(records_of(folder))


def test_a_lone_value_is_a_dot_and_its_axis_has_different_labels() -> None:
    places = {name: np.array([8.0]) for name in ("steps", "tokens", "minutes")}
    chart = line_chart("Loss", [Series("a run", places, np.array([7.2993]))])
    assert 'class="dot c0"' in chart and "legend" not in chart
    (left,) = re.findall(r'<div class="left">(.*?)</div>', chart)
    labels = re.findall(r">([^<]+)</span>", left)
    assert len(set(labels)) == len(labels) > 1


def test_validations_alone_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [validation(step, 3.0 + step) for step in (1, 2)])
    assert '<span class="dot c1">validation</span>' in run_page(records_of(folder)).replace("c0", "c1")


def test_a_run_with_one_logged_row_has_a_table_instead_of_charts_with_one_dot(tmp_path: Path) -> None:
    saved: JsonObject = {"event": "saved", "step": 1, "peak_memory": 1 << 20}
    events: list[JsonObject] = [{"event": "started"}, saved, {**saved, "event": "finished"}]
    page = run_page(records_of(write_run(tmp_path / "run", [update(1, 5.5), validation(1, 5.25)], events)))
    assert re.findall("<h3>([^<]*)", page) == ["Time line"]
    for cells in (
        "<td>Loss, training</td><td>5.5 nats</td><td>1</td>",
        "<td>Speed</td><td>10,001 tokens/s</td>",
    ):
        assert cells in page
    two = run_page(records_of(write_run(tmp_path / "two", [update(1), update(2)], events)))
    assert "<h3>Loss" in two and "logged at one step" not in two


def test_a_page_without_charts_has_no_switch_of_their_axis(tmp_path: Path) -> None:
    assert "<fieldset" not in run_page(records_of(write_run(tmp_path / "empty", [])))
    assert "<fieldset" in run_page(records_of(write_run(tmp_path / "run", [update(1), update(2)])))


def test_the_start_and_the_end_of_a_run_are_no_stops(tmp_path: Path) -> None:
    events: list[JsonObject] = [
        {"event": "started"},
        {"event": "stopped", "step": 3, "reason": "SIGTERM"},
        {"event": "resumed", "step": 3},
        {"event": "finished", "step": 9},
    ]
    lanes = lanes_of(records_of(write_run(tmp_path / "run", [update(9)], events)))
    assert [(one.step, one.text) for one in lanes["stops"]] == [(3, "stopped: SIGTERM")]
    assert [one.text for one in lanes["starts"]] == ["started", "resumed"]
    assert [one.text for one in lanes["ends"]] == ["finished"]


def test_bits_per_byte_of_the_best_validation_are_in_a_card(tmp_path: Path) -> None:
    rows = [update(5), validation(5, 3.0), validation(9, 2.5), validation(12, 2.75)]
    card = "<dt>bits per byte</dt><dd>1.2500</dd>"
    assert card in run_page(records_of(write_run(tmp_path / "text", rows)))
    no_text = [{**row, "val_bits_per_byte": None} if "val_loss" in row else row for row in rows]
    page = run_page(records_of(write_run(tmp_path / "ids", no_text)))
    assert "<dt>best validation</dt>" in page and "<dt>bits per byte</dt>" not in page


@pytest.mark.parametrize("name", ["a b%20'\"<x>", "javascript:alert(1)"])
def test_the_link_to_the_log_is_relative_to_the_page(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / name, [update(1)])
    config = records_of(folder).config
    write_page(folder, config, tmp_path / "none.html")
    assert "log.txt" not in (tmp_path / "none.html").read_text()
    folder.output_file.write_text("step 1\n")
    for file in (tmp_path / "page.html", folder.path / "report.html"):
        write_page(folder, config, file)
        found = re.findall('<a href="([^#][^"]*)">log.txt</a>', file.read_text())
        assert len(found) == 1 and not found[0].startswith("/")
        assert urljoin(file.as_uri(), unescape(found[0])) == folder.output_file.as_uri()


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        ("2026-01-31T14:05:09+0000", "2026-01-31 14:05 UTC"),
        ("2026-01-31T14:05:09-0330", "2026-01-31 14:05 UTC-03:30"),
        ("2026-01-31T14:05:09+05:30", "2026-01-31 14:05 UTC+05:30"),
        ("2026-01-31T14:05:09.123Z", "2026-01-31 14:05 UTC"),
        ("2026-01-31T14:05:09", "2026-01-31 14:05"),
        ("<b>", ""),
        (None, ""),
    ],
)
def test_a_time_names_its_zone(time: Json, shown: str) -> None:
    assert clock_text(time) == shown


def test_the_times_of_a_page_name_their_zone(tmp_path: Path) -> None:
    started = {"event": "started", "time": "2026-01-02T10:00:00+0100", "machine": {"cpu": "x"}}
    page = run_page(records_of(write_run(tmp_path / "run", [update(1)], [started])))
    assert "started 2026-01-01 10:00 UTC" in page and ">2026-01-02 10:00 UTC+01:00<" in page
