"""Compare a step that exists with the state to save: a repeated run saves the same step again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, SaveError
from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.checkpoint.ranks import on_all
from mudd_core.checkpoint.verify import verify_step
from mudd_core.checkpoint.write_plan import HeldPart, WritePlan
from mudd_core.dist import Comm


def is_saved(
    folder: Path,
    plan: WritePlan,
    array_of: Callable[[HeldPart], Array],
    identity: tuple[str, str, Mapping[str, Json]],
    comm: Comm | None,
) -> bool:
    """Return whether the existing step has this config and state, and the same bytes in the same parts.

    array_of: returns a part that this rank has. identity: run, config hash and state of the run. comm: all ranks call
    this. Raise SaveError if the step belongs to another run.
    """
    run_id, config_hash, state = identity
    try:
        found = verify_step(folder, comm=comm)
    except (FormatError, OSError):
        return False
    if found.run_id != run_id:
        raise SaveError(
            f"{folder} belongs to run {found.run_id}, not to this run {run_id}; it is not overwritten"
        )
    if found.config_hash != config_hash or _untimed(found.state) != _untimed(state):
        return False
    stored = {
        (name, begin, end): list(part.crcs)
        for name, about in found.tensors.items()
        for part, (begin, end) in zip(about.slices, about.ranges(), strict=True)
    }
    if stored.keys() != {(part.name, part.begin, part.end) for part in plan.parts}:
        return False
    own = plan.files[comm.rank if comm else 0]

    def same() -> bool:
        return all(
            _core.crc32c_blocks(array_of(part)) == stored[part.name, part.begin, part.end]
            for members in own.values()
            for part in members
        )

    return all(on_all(comm, same))


def _untimed(state: Mapping[str, Json]) -> JsonObject:
    """Return a state without its wall time, which differs in a repeated run."""
    return {
        name: value
        for name, value in json.loads(json.dumps(dict(state), default=str)).items()
        if name != "seconds"
    }
