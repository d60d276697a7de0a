"""The slots of a TokenFormer that starts from weights with fewer of them (docs/maths/tokenformer.md, 5)."""

from __future__ import annotations

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.config import ModelConfig, TokenFormerConfig

# The slot tensors of a block, and the group of each.
PARTS = {"attn.q": "qkv", "attn.o": "proj", "ffn": "ffn"}
_GROWING = ("key", "value", "key_bias")


def real_rows(name: str, stored: int, slot_number: int) -> int:
    """Return the number of valid leading rows of a stored slot tensor: all, or slot_number (4 times it in the FFN)."""
    if slot_number < 0:
        return stored
    factor = 4 if ".ffn." in name else 1
    rows = slot_number * factor
    if rows > stored:
        raise UserError(
            f"[start] load_parameters_path_slot_number: expected at most {stored // factor}, because '{name}' has "
            f"{stored} stored slots, got {slot_number}"
        )
    return rows


def grows(model: ModelConfig, name: str) -> bool:
    """Return True for the keys, values and key biases of a TokenFormer's slots."""
    return isinstance(model, TokenFormerConfig) and name.rpartition(".")[2] in _GROWING


def grown(name: str, old: Array, fresh: Array, slot_number: int) -> Array:
    """Return `fresh` with its first rows replaced by the valid rows of `old`; raise UserError if they do not fit."""
    rows = real_rows(name, old.shape[0], slot_number)
    if old.shape[1:] != fresh.shape[1:] or rows > fresh.shape[0]:
        raise UserError(
            f"[start] {name}: expected at most {fresh.shape[0]} slots of {fresh.shape[1:]}, got "
            f"{rows} of {old.shape[1:]}; only the number of slots may differ, and it can only grow"
        )
    result = np.array(fresh)
    result[:rows] = dtypes.as_float32(old[:rows])
    return result
