"""Checks of users' token ids and batches, and their conversion to int32 [B, T] for the graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array, Int32
from mudd_core.config import ModelConfig
from mudd_core.engine.argument_check import require_batch
from mudd_core.engine.memory import available_bytes

_INT32 = np.iinfo(np.int32)
OPTIONAL = ("positions", "segments", "key_mask")
_MANY = 1 << 24  # ids; for fewer, the available memory is not checked
_LEAST_BYTES = 64  # bytes of activations per id


def check_size(array: Array, place: str, name: str) -> None:
    """Raise ValueError for more ids than fit into memory: a broadcast view is small, but reading it would take
    hours.
    """
    if array.size > _MANY and _LEAST_BYTES * array.size > available_bytes()[0]:
        raise ValueError(f"[{place}] {name}: expected ids that fit into memory, got shape {array.shape}")


def _array(given: npt.ArrayLike, name: str) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:  # the sequences have different lengths
        raise ValueError(
            f"[model] {name}: expected sequences of one length, got a ragged list; pad them (a "
            "negative target is ignored)"
        ) from error


def checked_ids(tokens: npt.ArrayLike, name: str, config: ModelConfig) -> Int32:
    """Return ids [B, T] or [T] as int32 [B, T]; raise ValueError or TypeError if the model cannot use them.

    name: the argument's name, for errors. The ids of `targets` may be negative.
    """
    given = _array(tokens, name)
    if given.dtype.kind in "US":
        raise TypeError(f"[model] {name}: expected token ids, got text; pass trainer.tokenizer.encode(text)")
    if given.size and given.dtype.kind not in "iu":
        kind = type(tokens).__name__ if given.dtype.kind == "O" else given.dtype
        hint = "; pass ids.astype(np.int32)" if given.dtype.kind in "fb" else ""
        raise TypeError(f"[model] {name}: expected integers, got {kind}{hint}")
    ids = np.atleast_2d(given)
    if ids.ndim != 2 or ids.size == 0:
        raise ValueError(
            f"[model] {name}: expected [B, T] or [T] with at least one id, got shape {given.shape}"
        )
    if ids.shape[1] > config.max_seq_len:
        raise ValueError(
            f"[model] {name}: expected at most {config.max_seq_len} positions, got {ids.shape[1]}; "
            f"pass the last ones, ids[..., -{config.max_seq_len}:], or use a larger model.max_seq_len"
        )
    check_size(ids, "model", name)
    low, high = int(ids.min()), int(ids.max())
    wrong = high if high >= config.vocab_size else low
    if wrong >= config.vocab_size or (name != "targets" and wrong < 0):
        raise ValueError(f"[model] {name}: expected ids in [0, {config.vocab_size}), got {wrong}")
    if name == "targets":  # every negative target means the same: ignored
        ids = np.maximum(ids, _INT32.min) if ids.dtype.kind == "i" else ids
    return np.ascontiguousarray(ids, dtype=np.int32)


def _checked_optional(given: npt.ArrayLike, name: str) -> Int32:
    """Return positions, segments or key_mask as int32 [B, T]; a key_mask may be boolean."""
    array = np.atleast_2d(_array(given, name))
    if array.dtype.kind not in ("iub" if name == "key_mask" else "iu"):
        raise TypeError(f"[model] {name}: expected integers, got {array.dtype}")
    if array.size and not _INT32.min <= int(array.min()) <= int(array.max()) <= _INT32.max:
        raise ValueError(
            f"[model] {name}: expected 32-bit integers, got {int(array.min())} to {int(array.max())}"
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def checked_batch(
    batch: Mapping[str, npt.ArrayLike], config: ModelConfig
) -> tuple[dict[str, Int32], tuple[str, ...]]:
    """Return (int32 arrays [B, T] of a batch, names of its optional arrays); raise ValueError or TypeError if
    invalid.
    """
    require_batch(batch)
    unknown = set(batch) - {"inputs", "targets", *OPTIONAL}
    if unknown or not {"inputs", "targets"} <= set(batch):
        raise ValueError(
            f"[model] batch: expected inputs, targets and optionally {', '.join(OPTIONAL)}; "
            f"got {', '.join(sorted(batch))}"
        )
    optional = tuple(name for name in OPTIONAL if batch.get(name) is not None)
    given = {name: np.atleast_2d(_array(batch[name], name)) for name in ("inputs", "targets", *optional)}
    for name, array in given.items():  # sizes are checked before any value is read
        if given["inputs"].ndim == 2 and array.shape != given["inputs"].shape:
            raise ValueError(f"[model] {name}: expected shape {given['inputs'].shape}, got {array.shape}")
    arrays = {name: checked_ids(given[name], name, config) for name in ("inputs", "targets")}
    for name in optional:
        arrays[name] = _checked_optional(given[name], name)
    return arrays, optional
