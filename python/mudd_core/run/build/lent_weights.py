"""Weights of a base that stay in its file: mapped, so that they take no memory of their own."""

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
    """The weights of a source that a model can have where they lie: copies on write, so the file stays as it is.

    types: "bfloat16" or "float16" by name, as the model stores them. shapes: of those that may be lent.
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
    """Whether a weight lies at the very place of a file that the tensor is read from."""
    array = lent.get(name)
    if not isinstance(array, np.memmap) or not isinstance(tensor, StoredTensor) or tensor.place is None:
        return False
    return str(array.filename) == str(tensor.place.file.resolve()) and array.offset == tensor.place.begin


def let_go(lent: Mapping[str, Array]) -> None:
    """Give the pages of what is lent, and was not written, back to the system; touched, they are read again."""
    for array in lent.values():
        if isinstance(array.base, mmap.mmap):
            array.base.madvise(mmap.MADV_DONTNEED)


def _tensors(source: Path) -> Mapping[str, StoredTensor]:
    """What a source has, neither verified nor read; nothing where that fails, which is said where it is read."""
    try:
        run, step = run_and_step(source, state=False)
        if run is None:
            return stored_weights(source, warns=False)
        checkpoints = Checkpoints(run)
        return checkpoints.stored(max(checkpoints.steps()) if step < 0 else step)
    except (FormatError, OSError, UserError, ValueError):
        return {}
