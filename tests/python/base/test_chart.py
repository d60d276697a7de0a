"""Charts: round ticks, positions of values, and well-formed SVG for all values."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudd_core.base.show.chart import Axis, Chart, axis, number, text_chart, tick_labels

numbers = st.floats(-1e9, 1e9, allow_nan=False)


def test_ticks_are_round_and_inside() -> None:
    assert Axis(0, 10, "").ticks(5) == [0, 2, 4, 6, 8, 10]
    assert Axis(1.17, 1.31, "").ticks(6) == pytest.approx([1.175, 1.2, 1.225, 1.25, 1.275, 1.3])
    assert Axis(0.9, 1100, "", log=True).ticks() == pytest.approx([1, 10, 100, 1000])
    assert Axis(2, 9, "", log=True).ticks() == pytest.approx([2, 4, 6, 8])


def test_numbers_are_written_for_people() -> None:
    written = {0.25: "0.25", 40: "40", 2500: "2500", 15000: "15k", 2e6: "2M", 1.25e9: "1.25G", 3e15: "3e+15"}
    assert {value: number(value) for value in written} == written
    assert [number(value) for value in (9_899, 9_900, 999_949, 999_999, 1_000_000)] == [
        "9899",
        "9.9k",
        "999.9k",
        "1M",
        "1M",
    ]


def test_steps_have_whole_ticks() -> None:
    def ticks(low: float, high: float) -> list[str]:
        return tick_labels(axis((low, high), "step", whole=True, margin=0.0).ticks(7))

    assert ticks(1, 1) == ["1"] and ticks(1, 2) == ["1", "2"]
    assert ticks(1, 10) == ["2", "4", "6", "8", "10"]
    assert ticks(0, 17) == ["0", "5", "10", "15"]
    assert ticks(1, 1_000_000) == ["200k", "400k", "600k", "800k", "1M"]
    assert ticks(1_000_000, 1_000_004) == ["1000000", "1000001", "1000002", "1000003", "1000004"]


def test_labels_tell_close_values_apart() -> None:
    assert tick_labels((2.0, 2.00005, 2.0001)) == ["2", "2.00005", "2.0001"]
    assert tick_labels((3.0, 3.0)) == ["3", "3"]
    drawn = Chart("", axis((1, 3), "step"), axis((2.00001, 2.00005), "nats")).finish()
    assert "2.00002" in drawn and "2.00004" in drawn


def test_the_ends_of_a_text_chart_are_the_first_and_the_last_step() -> None:
    def below(*steps: int) -> list[str]:
        x = axis(steps, "step", whole=True, margin=0.0)
        chart = text_chart("", x, Axis(2.0, 2.0002, ""), [(".", [(step, 2.0) for step in steps])])
        assert [line.split("|")[0].strip() for line in chart.splitlines() if "|" in line][::7] == [
            "2.0002",
            "2.0001",
        ]
        return chart.splitlines()[-1].split()

    assert below(1, 10) == ["1", "step", "10"] and below(1, 1_000_000) == ["1", "step", "1M"]
    assert below(1) == ["step", "1"]


@given(st.lists(numbers, min_size=1), st.booleans())
def test_every_value_is_on_its_axis(values: list[float], log: bool) -> None:
    found = axis(values, "x", log=log)
    kept = [v for v in values if v >= 1e-30 or not log]
    # float64 divisions.
    assert all(-1e-6 <= found.share(v) <= 1 + 1e-6 for v in kept)
    assert all(-1e-6 <= found.share(tick) <= 1 + 1e-6 for tick in found.ticks())
    assert 1 <= len(found.ticks()) <= 15


@given(st.lists(st.tuples(numbers, st.floats()), max_size=20))
def test_any_numbers_make_a_well_formed_picture(points: list[tuple[float, float]]) -> None:
    chart = Chart("a < b & c", axis((x for x, _ in points), "x"), axis((y for _, y in points), "y"))
    chart.line(points, "#000000", dashed=True)
    chart.band([(x, y, y + 1) for x, y in points], "#000000")
    chart.dots(points, "#000000", ["<1>"] * len(points))
    chart.legend("ours & theirs", "#000000")
    tree = ElementTree.fromstring(chart.finish())
    (polyline,) = tree.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(polyline.get("points", "").split()) == sum(math.isfinite(y) for _, y in points)
    words = " ".join(t.text or "" for t in tree.iter("{http://www.w3.org/2000/svg}text"))
    assert "a < b & c" in words and "nan" not in chart.finish()
