"""--multirun: every combination of the values that are given with commas, as a command line of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.config.arguments import argument
from mudd_core.programs.moe.hydra.interpolation import resolved
from mudd_core.programs.moe.hydra.resolve import compose_words, is_raw
from mudd_core.programs.moe.hydra.values import split_choices
from mudd_core.programs.moe.keys import FOLDER

NAMES = ("--multirun", "-m")


def jobs(words: Sequence[str], kept: Sequence[str]) -> list[list[str]]:
    """The words of each run, in Hydra's order; run i works in run_dir/i.

    words: of the grammar. kept: of this program (--ranks=2), which every run takes.
    """
    single = [word for word in words if word not in NAMES]
    choices = [_texts(word) for word in single]
    found = []
    for number, picked in enumerate(itertools.product(*choices)):
        _, composed, _, _ = compose_words(picked)
        folder = resolved(composed.tree).get(FOLDER)
        if not isinstance(folder, str) or not folder:
            raise UserError(f"[hydra] --multirun: expected a config with {FOLDER}, the folder of the runs")
        rest = [word for word in picked if argument(word).option.lstrip("+") != FOLDER]
        quoted = folder.replace("'", "\\'")
        found.append([*kept, *rest, f"++{FOLDER}='{quoted}/{number}'"])
    return found


def _texts(word: str) -> list[str]:
    """The words that a word means: itself, or one for each of its values."""
    item = argument(word)
    if item.mark in ("-", "--") or item.value is None or is_raw(word):
        return [word]
    try:
        return [f"{item.option}={choice}" for choice in split_choices(item.value)] or [word]
    except ValueError as error:
        raise UserError(f"[hydra] {word}: {error}") from None
