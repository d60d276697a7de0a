"""Weights of a base that are memory-mapped from the base's file instead of copied."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor
from mudd_core.checkpoint.weights import stored_weights
from mudd_core.run.build.start_source import run_and_step
from mudd_core.run.store.checkpoints import Checkpoints

_WORDS = {"bfloat16": np.dtype(np.uint16), "float16": np.dtype(np.float16)}


def lent_weights(
    source: Path, types: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Return the weights of a source that a model can use in place: copy-on-write maps, so the file never changes.

    types: "bfloat16" or "float16" by name, as the model stores them. shapes: the shapes of the candidates.
    """
    found: dict[str, Array] = {}
    for name, tensor in _tensors(source).items():
        words, place = _WORDS.get(types.get(name, "")), tensor.place
        own = np.dtype(np.uint16) if tensor.dtype == dtypes.BF16 else tensor.dtype
        if words is None or own != words or place is None or shapes.get(name) != tensor.shape:
            continue
        if tensor.size and place.begin % words.itemsize == 0:
            found[name] = np.memmap(place.file, words, "c", place.begin, tensor.shape)
    return found


def is_lent(lent: Mapping[str, Array], name: str, tensor: AnyTensor) -> bool:
    """Return True if a mapped weight is at the same file position as the tensor."""
    array = lent.get(name)
    if not isinstance(array, np.memmap) or not isinstance(tensor, StoredTensor) or tensor.place is None:
        return False
    return str(array.filename) == str(tensor.place.file.resolve()) and array.offset == tensor.place.begin


def let_go(lent: Mapping[str, Array]) -> None:
    """Release the unmodified pages of mapped weights. They are read again on access."""
    for array in lent.values():
        if isinstance(array.base, mmap.mmap):
            array.base.madvise(mmap.MADV_DONTNEED)


def _tensors(source: Path) -> Mapping[str, StoredTensor]:
    """Return the tensors of a source without reading or verifying; empty on errors, which reading will report."""
    try:
        run, step = run_and_step(source, state=False)
        if run is None:
            return stored_weights(source, warns=False)
        checkpoints = Checkpoints(run)
        return checkpoints.stored(max(checkpoints.steps()) if step < 0 else step)
    except (FormatError, OSError, UserError, ValueError):
        return {}
