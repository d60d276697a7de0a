"""Which parameters train: the patterns of train.trainable over their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.engine.name_patterns import choose_names

if TYPE_CHECKING:
    from mudd_core import _core
    from mudd_core.config import TuneConfig


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


def choose_trained(store: _core.ParamStore, patterns: str) -> list[str]:
    """Return the names of a store that train by the patterns; UserError for one that is stored in 16 bits."""
    chosen = trained_names(patterns, store.names())
    for name in chosen:
        if (kind := store.describe(name)["stored"]) != "float32":
            raise UserError(
                f"[config] train.trainable: expected parameters stored in float32, got '{name}', which is in {kind}; "
                f"leave it out ('!{name}'), or make the model without `stored`"
            )
    return chosen


def trained_note(store: _core.ParamStore, tune: TuneConfig) -> str:
    """How many parameters train, and by which field, for the user; empty where all do."""
    trained, count = store.trained_elements, int(store.elements)
    field = "train.trainable" if tune.method == "full" else f"tune.method={tune.method}"
    return "" if trained == count else f"{trained:,} of {count:,} parameters train ({field})"
