"""Checks of a verified checkpoint's state before it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import build, entries
from mudd_core.checkpoint import Checkpoint
from mudd_core.checkpoint.steps import MANIFEST
from mudd_core.run.records.events import Rewind

_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class _Counters:
    """The keys that every checkpoint's state has."""

    step: int
    skips_in_row: int
    last_loss: float | None
    seconds: float
    anchor: int | None = None


@contextlib.contextmanager
def reading_state(found: Checkpoint) -> Iterator[None]:
    """Inside the block, load the state; raise FormatError if a run could not have saved it."""
    file = found.path / MANIFEST
    counters = build(_Counters, found.state, file, "state: ")
    if counters.step != found.step:
        raise FormatError(
            str(file), 0, f"state: it is of step {counters.step}, the checkpoint of {found.step}"
        )
    for name, kind in (("skipped_steps", int), ("spike_losses", float), ("spike_norms", float)):
        if name in found.state or name == "skipped_steps":
            entries(found.state, name, kind, file, "state: ")
    for rewind in entries(found.state, "rewinds", dict, file, "state: ") if "rewinds" in found.state else []:
        build(Rewind, rewind, file, "state: rewinds: ")
    try:
        yield
    except UserError:
        raise
    except _WRONG as error:
        raise FormatError(str(file), 0, f"state: {type(error).__name__}: {error}") from error
