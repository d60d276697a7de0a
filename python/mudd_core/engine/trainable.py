"""Which parameters train: the patterns of train.trainable over their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from mudd_core.base.errors import UserError

_NEAR = 0.5  # least likeness of a name that a message offers


def trained_names(patterns: str, names: Sequence[str]) -> list[str]:
    """The names that the patterns choose, in their order.

    patterns: of shells (`*`, `?`, `[ab]`), separated by commas; `!` before one excludes. A name trains if one without
    `!` matches it (or there is none such) and none with `!` does. UserError for a pattern that matches nothing, and
    where nothing trains.
    """
    wanted: list[str] = []
    unwanted: list[str] = []
    for pattern in filter(None, (word.strip() for word in patterns.split(","))):
        bare = pattern.removeprefix("!").strip()
        if not any(fnmatchcase(name, bare) for name in names):
            raise UserError(
                f"[config] train.trainable: expected patterns of parameter names, '{bare}' matches none"
                f"{_near(bare, names)}"
            )
        (unwanted if pattern.startswith("!") else wanted).append(bare)
    chosen = [
        name
        for name in names
        if (not wanted or any(fnmatchcase(name, one) for one in wanted))
        and not any(fnmatchcase(name, one) for one in unwanted)
    ]
    if not chosen:
        raise UserError(
            f"[config] train.trainable: expected at least one parameter to train, '{patterns}' leaves none; "
            "drop a pattern with '!'"
        )
    return chosen


def choose_trained(model: Any, patterns: str) -> list[str]:
    """Mark in a model's store what trains by the patterns, and return those names."""
    chosen = trained_names(patterns, model.store.names())
    model.train_only(chosen)
    return chosen


def trained_note(model: Any) -> str:
    """How many parameters train, for the user; empty where all do."""
    trained, count = model.store.trained_elements, model.n_parameters
    return "" if trained == count else f"{trained:,} of {count:,} parameters train (train.trainable)"


def _near(pattern: str, names: Sequence[str]) -> str:
    """Up to three names like the pattern, those of all layers as one."""
    offered = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
    found = difflib.get_close_matches(re.sub(r"\.\d+\.", ".*.", pattern), offered, 3, _NEAR)
    near = f"near names: {', '.join(found)}" if found else f"there are {', '.join(offered[:3])} and more"
    return f"; {near} (--params lists all)"
