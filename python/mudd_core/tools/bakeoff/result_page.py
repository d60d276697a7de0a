"""The result of a bake-off as a table for the terminal, and as a page in the style of a run's page."""

from __future__ import annotations

import numpy as np

from mudd_core.base.show.tables import text_table
from mudd_core.base.types import Float64
from mudd_core.run.report.page.elements import Section, cards, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.series import Series
from mudd_core.run.report.page.shell import page as page_of
from mudd_core.tools.bakeoff.result import MeanPoint, ModelResult, Result

MEASURES = {"val_bits_per_byte": "Bits per byte, held-out text", "loss": "Training loss (nats per token)"}
UNITS = {"val_bits_per_byte": "bits per byte", "loss": "nats per token"}
ACROSS = ("tokens", "FLOPs", "seconds")
# The loss axis ends at minimum + 4 (median - minimum); higher values are drawn at its edge.
_FALL = 4


def claim(result: Result) -> str:
    """Return the result of two models in a sentence; with more models, the title of the comparison."""
    models = result["models"]
    if len(models) != 2 or models[1]["difference"] is None:
        return result["title"]
    less, around, name = models[1]["difference"], models[1]["difference_interval95"], models[1]["name"]
    equal = result["title"].partition(" families ")[2]
    how = f" {equal}" if equal else ""
    if around is not None and abs(less) <= around:
        return f"{name} and {models[0]['name']} do not differ{how} (95 % interval)"
    unit = UNITS[result["measure"]]
    size = f"{abs(less):.2f}" + (f" ± {around:.2f}" if around is not None else "")
    return f"{name} is {size} {unit} {'below' if less < 0 else 'above'} {models[0]['name']}{how}"


def rows_of(result: Result) -> list[list[str]]:
    """Return the heading and a row for each model, as strings."""
    rows = [["", "parameters", "FLOPs", "tokens", "seconds", "result", "difference to the first", "verdict"]]
    for one in result["models"]:
        seconds = sum(one["seconds"]) / len(one["seconds"])
        rows.append(
            [
                one["name"],
                f"{one['parameters']:,}",
                f"{one['training_flops']:.3g}",
                f"{one['tokens']:,}",
                f"{seconds:,.0f}",
                _with_interval(one["mean"], one["interval95"]),
                ""
                if one["difference"] is None
                else _with_interval(one["difference"], one["difference_interval95"]),
                one["verdict"],
            ]
        )
    return rows


def _with_interval(value: float, interval: float | None) -> str:
    return f"{value:.4f}" + (f" ± {interval:.4f}" if interval is not None else "")


def terminal_table(result: Result) -> str:
    """Return the table for a terminal."""
    rows = rows_of(result)
    return "\n".join(text_table(rows, left=(0, len(rows[0]) - 1)))


def page(result: Result) -> str:
    """Return one self-contained HTML page: a card for each model, the table, and the curves."""
    (_, *heading), *rows = rows_of(result)
    said = claim(result)
    models = Section(
        "Models",
        cards(map(_card, result["models"]))
        + table(rows, ["model", *heading], "stacked")
        + text(_how(result)),
    )
    machine = Section(
        "Machine",
        text(f"{result['environment']}. Seconds are of this machine as it was, other programs included."),
    )
    subtitle = "" if said == result["title"] else result["title"]
    return page_of(said, subtitle, [models, Section("Curves", _curves(result)), machine], across=ACROSS)


def _card(model: ModelResult) -> tuple[str, str, str]:
    interval = model["interval95"]
    return model["name"], f"{model['mean']:.4f}", "" if interval is None else f"± {interval:.4f}"


def _how(result: Result) -> str:
    """Return how the results were measured."""
    measure, seeds = MEASURES[result["measure"]], result["seeds"]
    if seeds == 1:
        return f"{measure}; one seed, so there are no intervals. {result['note']}".rstrip()
    how = "the same data order for all models of a seed, ± half the 95 % interval (Student's t)"
    return (
        f"{measure}; mean of {seeds} seeds, {how}; differences are paired by seed. {result['note']}".rstrip()
    )


def _curves(result: Result) -> str:
    """Return the chart of the mean curves with their 95 % bands."""
    points = [point for one in result["models"] for point in one["curve"]]
    # The loss falls so far in the first steps that later differences would be invisible.
    values = np.sort([point["mean"] for point in points])
    shown = values[values <= values[0] + _FALL * (np.median(values) - values[0] or 1.0)]
    ends = [one["curve"][-1] for one in result["models"]]
    bands = [end["mean"] + sign * (end["interval95"] or 0.0) for end in ends for sign in (-1, 1)]
    unit, seeds = UNITS[result["measure"]], result["seeds"]
    return line_chart(
        MEASURES[result["measure"]],
        [_series(one["name"], one["curve"], unit) for one in result["models"]],
        wide=True,
        covers=[*shown.tolist(), *bands],
        note=f"Bands: 95 % interval of {seeds} seeds." if seeds > 1 else "",
    )


def _series(name: str, curve: list[MeanPoint], unit: str) -> Series:
    spread = [point["interval95"] for point in curve]
    return Series(
        name,
        {
            "tokens": _column([point["tokens"] for point in curve]),
            "FLOPs": _column([point["flops"] for point in curve]),
            "seconds": _column([point["seconds"] for point in curve]),
        },
        _column([point["mean"] for point in curve]),
        texts=[f"{_with_interval(point['mean'], point['interval95'])} {unit}" for point in curve],
        spread=_column([one for one in spread if one is not None]) if None not in spread else None,
    )


def _column(values: list[float]) -> Float64:
    return np.array(values, np.float64)
