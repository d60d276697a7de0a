"""Checkpoints: folders `step-<n>` that appear complete or not at all, and are verified before they are used.

A tensor named `plane/name` (an optimizer moment) is written to the shard files of its plane; a name without a slash is
a weight and is written to `model-*.safetensors`, which other tools can open. `state` is any JSON. docs/checkpoints.md
has the format, the order of a save, and the test of each guarantee.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable

import numpy as np

from mudd_core.checkpoint.load import Checkpoint, PassedOver, load_newest, load_step
from mudd_core.checkpoint.ranks import on_all
from mudd_core.checkpoint.save import save, space_for
from mudd_core.checkpoint.state_part import Described, StatePart, described, is_weight, whole_tensors
from mudd_core.checkpoint.steps import list_steps, recover, step_folder
from mudd_core.checkpoint.stored import whole_parts
from mudd_core.checkpoint.verify import drop_after, keep_last, verify_step
from mudd_core.checkpoint.weights import load_weights
from mudd_core.checkpoint.write_plan import width
from mudd_core.dist import Comm

__all__ = [
    "Checkpoint",
    "PassedOver",
    "StatePart",
    "drop_after",
    "final_hash",
    "is_weight",
    "keep_last",
    "list_steps",
    "load_newest",
    "load_step",
    "load_weights",
    "recover",
    "save",
    "space_for",
    "step_folder",
    "verify_step",
    "whole_parts",
    "whole_tensors",
]


PIECE_BYTES = 1 << 20  # bytes sent to rank 0 at a time
SIGN_BYTES = 1 << 30  # bytes that are hashed between two heartbeats for the watchdog


def final_hash(parts: Iterable[StatePart], comm: Comm | None = None) -> str:
    """Return SHA-256 over (name, dtype, shape, bytes) of each tensor, in the order of the names' UTF-8 bytes.

    A tensor is hashed as `name \\0 dtype \\0 d0,d1,... \\0` followed by its row-major little-endian bytes;
    dtype is the safetensors name (F32). The result has 64 hex digits and does not depend on the number of ranks. comm:
    all ranks call this, and the parts of other ranks are sent to rank 0 in pieces. Raise ValueError for an element that
    no rank has.
    """
    own = {(part.name, part.begin): part for part in parts}
    parts_of_ranks = on_all(comm, lambda: [described(part) for part in own.values()])
    digest, quiet = hashlib.sha256(), 0
    for name, dtype, shape, holdings in _by_name(parts_of_ranks):
        digest.update(f"{name}\0{dtype}\0{','.join(map(str, shape))}\0".encode())
        at, elements = 0, math.prod(shape)
        while at < elements:
            end, _, begin, rank = _next(name, holdings, at)
            mine = own[name, begin].cut(at, end) if comm is None or comm.rank == rank else None
            _add(digest.update, mine, (end - at) * width(dtype), rank, comm)
            quiet += (end - at) * width(dtype)
            at = end
        if comm is not None and quiet > SIGN_BYTES:  # a heartbeat from the ranks that wait for rank 0
            comm.barrier()
            comm.set_phase("gather", 0)
            quiet = 0
    return digest.hexdigest() if comm is None else comm.broadcast(digest.hexdigest().encode()).decode()


_Holding = tuple[int, int, int, int]  # end, whether rank 0 has it, begin, rank


def _by_name(parts_of_ranks: list[list[Described]]) -> list[tuple[str, str, list[int], list[_Holding]]]:
    found: dict[str, tuple[str, list[int], list[_Holding]]] = {}
    for rank, facts in enumerate(parts_of_ranks):
        for name, dtype, shape, begin, end in facts:
            found.setdefault(name, (dtype, shape, []))[2].append((end, int(rank == 0), begin, rank))
    return [(name, *found[name]) for name in sorted(found, key=lambda text: text.encode())]


def _next(name: str, holdings: list[_Holding], at: int) -> _Holding:
    """Return the longest part that contains element `at`, preferably on rank 0."""
    able = [holding for holding in holdings if holding[2] <= at < holding[0]]
    if not able:
        raise ValueError(f"[final_hash] {name}: no rank has element {at}")
    return max(able, key=lambda holding: (holding[1], holding[0], -holding[3]))


def _add(
    update: Callable[[bytes | memoryview], None],
    part: StatePart | None,
    size: int,
    rank: int,
    comm: Comm | None,
) -> None:
    """Add a part of `size` bytes to the digest of rank 0. part: on the rank that has it, None on the others."""
    data = None if part is None else np.ascontiguousarray(part.array).reshape(-1).view(np.uint8)
    if comm is None or rank == 0:
        if data is not None:
            update(data.data)
        return
    for begin in range(0, size, PIECE_BYTES):
        end = min(begin + PIECE_BYTES, size)
        piece = comm.broadcast(bytes(end - begin) if data is None else data[begin:end].tobytes(), rank)
        if comm.rank == 0:
            update(piece)
