"""A bake-off as one HTML page that needs nothing else: three charts and the table."""

from __future__ import annotations

from html import escape
from typing import Literal

from mudd_core.base.show.chart import COLORS, Chart, axis
from mudd_core.base.show.tables import text_table
from mudd_core.tools.bakeoff.result import Result

Spent = Literal["tokens", "flops", "seconds"]

MEASURES = {"val_bits_per_byte": "bits per byte, held-out text", "loss": "training loss (nats per token)"}
_SPENT: tuple[tuple[Spent, str], ...] = (
    ("tokens", "tokens"),
    ("flops", "training FLOPs"),
    ("seconds", "seconds"),
)
_STYLE = (
    "body{font-family:sans-serif;max-width:800px;margin:2em auto;color:#333}"
    "table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child,td:last-child{text-align:left}"
)


def chart(result: Result, spent: Spent, label: str) -> str:
    """Mean curves with bands of 95 % over what was spent."""
    curves = [(one["name"], one["curve"]) for one in result["models"]]
    every = [point for _, curve in curves for point in curve]
    # The first steps of training fall so far that later differences would not be seen.
    values = sorted(point["mean"] for point in every)
    shown = [v for v in values if v <= values[0] + 4 * (values[len(values) // 2] - values[0] or 1.0)]
    picture = Chart(
        result["title"],
        axis((point[spent] for point in every), label),
        axis(shown, MEASURES[result["measure"]]),
    )
    for i, (name, curve) in enumerate(curves):
        color = COLORS[i % len(COLORS)]
        bands = [
            (p[spent], p["mean"] - p["interval95"], p["mean"] + p["interval95"])
            for p in curve
            if p["interval95"]
        ]
        if bands:
            picture.band(bands, color)
        picture.line([(p[spent], p["mean"]) for p in curve], color)
        picture.legend(name, color)
    return picture.finish()


def table(result: Result) -> list[list[str]]:
    """Heading and rows, as texts."""
    rows = [["", "parameters", "FLOPs", "tokens", "seconds", "result", "less the first", "verdict"]]
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
    """The table for a terminal."""
    rows = table(result)
    return "\n".join(text_table(rows, left=(0, len(rows[0]) - 1)))


def page(result: Result) -> str:
    """The whole HTML file."""
    heading, *rows = table(result)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    seeds = result["seeds"]
    how = (
        f"{MEASURES[result['measure']]}; mean of {seeds} seeds, the same data order for all models of a seed, "
        "± half the 95 % interval (Student's t); differences are paired by seed."
        if seeds > 1
        else f"{MEASURES[result['measure']]}; one seed, so there are no intervals."
    )
    charts = "\n".join(chart(result, spent, label) for spent, label in _SPENT)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(result["title"])}</title>'
        f"<style>{_STYLE}</style>\n<h1>{escape(result['title'])}</h1>\n<p>{escape(how)} {escape(result['note'])}</p>\n"
        f"<table><tr>{head}</tr>\n{body}</table>\n{charts}\n<p>{escape(result['environment'])}. Seconds are of this "
        "machine as it was, other programs included.</p></html>\n"
    )
