"""Which parameters train: the patterns of train.trainable over their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.engine.name_patterns import choose_names

if TYPE_CHECKING:
    from mudd_core.config import TuneConfig
    from mudd_core.engine.model import Model


def trained_names(patterns: str, names: Sequence[str]) -> list[str]:
    """The names that the patterns choose, in their order.

    patterns: of shells (`*`, `?`, `[ab]`), separated by commas; `!` before one excludes. A name trains if one without
    `!` matches it (or there is none such) and none with `!` does. UserError for a pattern that matches nothing, and
    where nothing trains.
    """
    selectors = list(filter(None, (word.strip() for word in patterns.split(","))))
    chosen = choose_names(selectors, names, "[config] train.trainable")
    if not chosen:
        raise UserError(
            f"[config] train.trainable: expected at least one parameter to train, '{patterns}' leaves none; "
            "drop a pattern with '!'"
        )
    return chosen


def choose_trained(model: Model, patterns: str) -> list[str]:
    """Mark in a model's store what trains by the patterns, and return those names."""
    chosen = trained_names(patterns, model.store.names())
    for name in chosen:
        if (kind := model.store.describe(name)["stored"]) != "float32":
            raise UserError(
                f"[config] train.trainable: expected parameters stored in float32, got '{name}', which is in {kind}; "
                f"leave it out ('!{name}'), or make the model without `stored`"
            )
    model.train_only(chosen)
    return chosen


def trained_note(model: Model, tune: TuneConfig) -> str:
    """How many parameters train, and by which field, for the user; empty where all do."""
    trained, count = model.store.trained_elements, model.n_parameters
    field = "train.trainable" if tune.method == "full" else f"tune.method={tune.method}"
    return "" if trained == count else f"{trained:,} of {count:,} parameters train ({field})"
