"""The muP section: widths and factors, and the initialization and learning rate of each kind of parameter."""

from __future__ import annotations

import re

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float64
from mudd_core.config import Config, MupConfig
from mudd_core.run.report.page.elements import Section, charts, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.series import COLORS, Series

_TITLE = "muP"
# mu-Transformer's names of statistics in metrics.jsonl: updates of matrices, and activations.
_UPDATE = re.compile(r"uu_(w_[a-z]+)(?:_\d+)?")
_ACTIVATION = re.compile(r"([a-z]+)_l1_\d+")


def mup(records: Records) -> Section | None:
    """Return the section with a table of sizes and a table of parameter kinds; None for other families."""
    model = records.config.model
    if not isinstance(model, MupConfig):
        return None
    from mudd_core.engine.parameter_kinds import HEAD, parameter_kinds

    vocabulary = records.facts.get("vocab_size")
    try:
        kinds = parameter_kinds(records.config, vocabulary if isinstance(vocabulary, int) else 0)
    except UserError as error:
        return Section(_TITLE, text(f"The parameters were not listed: {error}.", "note"))
    tables = table(_sizes(records.config, model), ("size", "value")) + table(kinds, HEAD)
    return Section(_TITLE, tables + _statistics(records))


def _statistics(records: Records) -> str:
    """Return the curves of log.weights and log.activations; a note about these fields if both are off."""
    updates = line_chart(
        "Mean |update| over its rate, by weight",
        _over_layers(records, _UPDATE),
        note="Near 1 for Adam at first, at every width (docs/maths/mup.md, 4.4); the mean over layers.",
    )
    activations = line_chart(
        "Mean |activation|",
        _over_layers(records, _ACTIVATION),
        note="The mean over layers; at every width of the same order (docs/maths/mup.md, 4.1).",
    )
    fields = "log.weights=true adds the size of each weight's update, log.activations=true the size of activations."
    return charts([updates, activations]) or text(fields, "note")


def _over_layers(records: Records, kind: re.Pattern[str]) -> list[Series]:
    """Return a series for each statistic that matches `kind`: its mean over layers, named without the layer."""
    columns: dict[str, list[Float64]] = {}
    for name, values in records.updates.items():
        if found := kind.fullmatch(name):
            columns.setdefault(found[1], []).append(np.asarray(values, np.float64))
    places = records.places(records.updates["step"]) if columns else {}
    return [Series(name, places, np.mean(each, 0)) for name, each in list(columns.items())[:COLORS]]


def _sizes(config: Config, model: MupConfig) -> list[tuple[str, str]]:
    return [
        ("width (model.d_model)", f"{model.d_model:,}"),
        ("base width (model.d_base)", f"{model.d_base:,}"),
        ("width over base width", f"{model.d_model // model.d_base:,}"),
        ("width of a head (model.d_head)", f"{model.d_head:,}"),
        ("inner width of the feed-forward block", f"{model.d_ff:,}"),
        ("factor of query times key (model.qk_scale)", f"{model.scale:g}"),
        ("rule of the rates (optim.rule)", config.optim.rule),
        ("rate of the base width (optim.lr)", f"{config.optim.lr:g}"),
    ]
