"""The tasks of the harness and of mudd_core, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from lm_eval.tasks import TaskManager

from mudd_core.base.errors import UserError, in_one_line
from mudd_core.lm_eval import TASKS
from mudd_core.tools.evaluate.names import unknown

_LONGEST = 200  # characters of an error of the harness


class Item(Protocol):
    """A task or a group of tasks of the harness, with its data."""


@cache
def _manager(include: Path | None, *, with_harness: bool) -> TaskManager:
    """Return the index of the tasks of mudd_core, of a folder, and of the harness."""
    places = [TASKS, *([] if include is None else [include])]
    return TaskManager(include_path=places, include_defaults=with_harness)


class Tasks:
    """An index of the tasks. The harness has thousands, which are read only if a name needs them."""

    def __init__(self, names: Sequence[str], include: Path | None) -> None:
        self.manager = _manager(include, with_harness=False)
        if set(names) - set(self.manager.all_tasks):
            self.manager = _manager(include, with_harness=True)

    def names(self) -> list[str]:
        """Return the names of all tasks, groups and tags, first the ones of mudd_core."""
        found: list[str] = self.manager.all_tasks
        return sorted(found, key=lambda name: (not name.startswith("mudd_"), name))

    def require_known(self, names: Sequence[str]) -> None:
        """Raise UserError with the nearest names for one that is no task."""
        known = self.names()
        for name in names:
            if name not in known:
                raise unknown(name, known)

    def loaded(self, names: Sequence[str]) -> list[Item]:
        """Return the tasks and groups with their data. Raise UserError if a data set cannot be loaded."""
        try:
            found = self.manager.load(list(names))
        except Exception as error:  # the libraries for data sets raise their own classes
            reason = f"{type(error).__name__}: {in_one_line(error)}"[:_LONGEST]
            raise UserError(
                f"[evaluate] --tasks: the data of {', '.join(names)} cannot be loaded ({reason}); most tasks load a "
                "data set of the Hugging Face hub: check the network, or load them once on a machine with network and "
                "copy its folder HF_HOME. --tasks=mudd_offline needs no network"
            ) from None
        inner = {child for children in found["group_map"].values() for child in children}
        both: dict[str, Item] = {**found["tasks"], **found["groups"]}
        return [item for name, item in both.items() if name not in inner]
