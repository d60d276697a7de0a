"""The Experts section: load of each expert by layer, dropped slots, and the router's entropy, over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mudd_core.base.types import Float64, Int64
from mudd_core.config import MixtureConfig, mixture_of
from mudd_core.run.report.page.elements import Section, charts, text
from mudd_core.run.report.page.heat_map import heat_map
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.series import COLORS, Series

_TITLE = "Experts"


def experts(records: Records) -> Section | None:
    """Return the section with a heat map [layer, expert] and curves by layer; None for a model without experts."""
    mixture = mixture_of(records.config.model)
    if mixture is None:
        return None
    steps, load = expert_loads(records, mixture)
    if not len(steps):
        missing = (
            "metrics.jsonl has no expert_load yet; it is written with every logged update (train.log_every)."
        )
        return Section(_TITLE, text(missing, "note"))
    count = mixture.n_expert
    map_note = (
        f"Slots that the router gave each expert in one update: 1 is an even load, {count} is all slots."
    )
    picture = heat_map(
        "Load of each expert",
        load,
        rows=[f"layer {layer}" for layer in range(mixture.n_layer)],
        columns=[f"expert {expert}" for expert in range(count)],
        steps=steps.tolist(),
        middle=1.0,
        unit="of an even load",
        note=map_note,
        wide=True,
    )
    curves = [
        _by_layer("Largest load of an expert", records, steps, load.max(2), "of an even load"),
        _by_layer("Entropy of the router", records, *_of_layers(records, "router_entropy", mixture), "nats"),
    ]
    steps, dropped = _of_experts(records, "expert_dropped", mixture)
    if dropped.any():
        curves.append(
            _by_layer("Dropped slots of an expert, at most", records, steps, 100 * dropped.max(2), "%")
        )
    even = text(f"A router to which all experts are equally likely has {math.log(count):.3f} nats.", "note")
    return Section(_TITLE, charts([picture, *curves]) + even)


def expert_loads(records: Records, mixture: MixtureConfig) -> tuple[Int64, Float64]:
    """Return (steps, loads [steps, layers, experts]) of the updates that have them; 1 is an equal load."""
    return _of_experts(records, "expert_load", mixture)


def _of_experts(records: Records, name: str, mixture: MixtureConfig) -> tuple[Int64, Float64]:
    """Return (steps, values [steps, layers, experts]) of a metric that is logged by layer and expert."""
    shape = (mixture.n_layer, mixture.n_expert)
    return _columns(records, [f"{name}/{layer}/{expert}" for layer, expert in np.ndindex(shape)], shape)


def _of_layers(records: Records, name: str, mixture: MixtureConfig) -> tuple[Int64, Float64]:
    """Return (steps, values [steps, layers]) of a metric that is logged by layer."""
    shape = (mixture.n_layer,)
    return _columns(records, [f"{name}/{layer}" for layer in range(mixture.n_layer)], shape)


def _columns(records: Records, names: Sequence[str], shape: tuple[int, ...]) -> tuple[Int64, Float64]:
    """Return (steps, values [steps, *shape]) of the updates that have all of these columns."""
    updates = records.updates
    if not all(name in updates for name in names):
        return np.zeros(0, np.int64), np.zeros((0, *shape))
    values = np.stack([np.asarray(updates[name], np.float64) for name in names], 1)
    whole = np.isfinite(values).all(1)
    return np.asarray(updates["step"][whole], np.int64), values[whole].reshape(-1, *shape)


def _by_layer(title: str, records: Records, steps: Int64, values: Float64, unit: str) -> str:
    """Return a chart with a curve for each of at most COLORS layers. values: [steps, layers].

    Evenly spaced layers are shown, with the first and the last.
    """
    layers = values.shape[1]
    shown = sorted({round(place) for place in np.linspace(0, layers - 1, min(layers, COLORS)).tolist()})
    places = records.places(steps)
    series = [Series(f"layer {layer}", places, values[:, layer]) for layer in shown]
    return line_chart(title, series, unit=unit)
