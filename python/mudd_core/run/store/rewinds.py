"""The returns of a run to its checkpoints, from its newest checkpoint and its events."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import build, entries
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.steps import MANIFEST
from mudd_core.run.records.events import EventName, Rewind
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metrics import events_of
from mudd_core.run.store.run_folder import RunFolder

_STARTS = (EventName.STARTED, EventName.RESUMED)
_FIELDS = ("from_step", "to_step", "first_batch", "last_batch")


def rewinds_of(folder: RunFolder) -> list[Rewind]:
    """Return the returns of a run in order: those in its newest checkpoint, then later ones in events.jsonl."""
    saved = _saved(folder)
    later = [_rewind(one, folder) for one in _of_last_process(folder) if one["event"] == EventName.REWOUND]
    # The events of the last process start before its newest checkpoint, so some of them are in the checkpoint too.
    common = max(n for n in range(len(later) + 1) if not n or later[:n] == saved[-n:])
    return [*saved, *later[common:]]


def _saved(folder: RunFolder) -> list[Rewind]:
    for step in reversed(Checkpoints(folder).steps()):
        file = folder.step_folder(step) / MANIFEST
        try:
            state = read_manifest(file.parent).state
        except (FormatError, OSError, UserError):  # a damaged or deleted step; an earlier one is used
            continue
        if "rewinds" not in state:
            return []
        return [build(Rewind, one, file, "state: rewinds: ") for one in entries(state, "rewinds", dict, file)]
    return []


def _of_last_process(folder: RunFolder) -> list[JsonObject]:
    """Return the events since the last start or resume."""
    found: list[JsonObject] = []
    for event in events_of(folder):
        found = [] if event["event"] in _STARTS else [*found, event]
    return found


def _rewind(event: Mapping[str, Json], folder: RunFolder) -> Rewind:
    return build(Rewind, {name: event.get(name) for name in _FIELDS}, folder.events_file)
