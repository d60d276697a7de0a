"""Read tensors of a verified step, or the parts that a rank needs; every block's checksum is checked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.manifest import BLOCK_BYTES, Manifest, Tensor
from mudd_core.checkpoint.ranks import in_rounds, on_all
from mudd_core.checkpoint.state_part import StatePart
from mudd_core.checkpoint.steps import MANIFEST
from mudd_core.checkpoint.verify import checked_range
from mudd_core.checkpoint.write_plan import stored_name, width
from mudd_core.dist import Comm

_ROUND_BYTES = 1 << 30  # bytes that a rank reads, approximately, between two synchronizations


def read_parts(folder: Path, manifest: Manifest, into: Sequence[StatePart], comm: Comm | None) -> None:
    """Fill the parts with the values of a step. Memory that ranks of a node share is complete on return, too.

    Raise ValueError, before anything is written, if a part does not fit.
    """
    into = [part for part in into if part.name in manifest.tensors or not part.optional]
    on_all(comm, lambda: _check(folder, manifest, into))

    # Not the index among all parts, because the ranks have different other parts.
    turns = {name: turn for turn, name in enumerate(sorted(part.name for part in into if part.shared))}

    own = [piece for part in into for piece in _own(part, turns.get(part.name, 0), comm)]
    rounds: list[list[StatePart]] = [[]]
    for piece in own:
        if sum(other.array.nbytes for other in rounds[-1]) > _ROUND_BYTES:
            rounds.append([])
        rounds[-1].append(piece)
    in_rounds(comm, "data", manifest.step, [partial(_fill_all, folder, manifest, some) for some in rounds])


def read_tensors(folder: Path, manifest: Manifest, wanted: Callable[[str], bool]) -> dict[str, Array]:
    """Return whole tensors, joined from their slices."""
    tensors: dict[str, Array] = {}
    for name, about in manifest.tensors.items():
        if not wanted(name):
            continue
        dtype = dtypes.numpy_dtype(about.dtype)
        if dtype is None:
            raise FormatError(
                str(folder / MANIFEST), 0, f"tensor {name!r} has the unknown dtype {about.dtype}"
            )
        tensors[name] = np.empty(about.shape, dtype)
        fill_range(folder, name, about, tensors[name].reshape(-1), 0)
    return tensors


def _own(part: StatePart, turn: int, comm: Comm | None) -> list[StatePart]:
    """Return the pieces of a part that this rank reads.

    These are the whole part, or some rows if ranks of a node share its memory.
    """
    if comm is None or not part.shared or comm.node_size == 1:
        return [part]
    rows = part.array.size // part.row
    pieces = max(1, min(comm.node_size, rows, part.array.nbytes // BLOCK_BYTES))
    cuts = [part.begin + rows * i // pieces * part.row for i in range(pieces + 1)]
    return [
        part.cut(cuts[i], cuts[i + 1]) for i in range(pieces) if (turn + i) % comm.node_size == comm.node_rank
    ]


def _fill_all(folder: Path, manifest: Manifest, parts: list[StatePart]) -> None:
    for part in parts:
        fill_range(folder, part.name, manifest.tensors[part.name], part.array.reshape(-1), part.begin)


def fill_range(folder: Path, name: str, about: Tensor, flat: Array, start: int) -> None:
    """Fill a flat array with the elements of a tensor from `start`; raise OSError or FormatError on failure."""
    size, stop = width(about.dtype), start + flat.size
    for piece, (begin, end) in zip(about.slices, about.ranges(), strict=True):
        first, last = max(begin, start), min(end, stop)
        if first < last:
            label = checked_range(stored_name(name, about.shape, begin, end), piece)
            _core.read_checked(
                str(folder / piece.file), label, flat[first - start : last - start], (first - begin) * size
            )


def _check(folder: Path, manifest: Manifest, into: Sequence[StatePart]) -> None:
    for part in into:
        about = manifest.tensors.get(part.name)
        if about is None:
            raise ValueError(f"[checkpoint] into: {part.name!r} is not in {folder}")
        if (about.dtype, about.shape) != (part.dtype, part.global_shape):
            raise ValueError(
                f"[checkpoint] into[{part.name!r}]: expected {about.dtype} {about.shape}, got {part.dtype} "
                f"{part.global_shape}"
            )
        if not part.array.flags.c_contiguous or not part.array.flags.writeable:
            raise ValueError(f"[checkpoint] into[{part.name!r}]: expected a writable C-contiguous array")
