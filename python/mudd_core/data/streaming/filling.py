"""Rows out of ids in memory, by the rules of the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Int32
from mudd_core.data.rows import filled

if TYPE_CHECKING:
    from mudd_core import _core


def filled_rows(
    rows: Sequence[Sequence[Int32]],
    rule: _core.RowRule,
    parts: tuple[str, ...],
    seq_len: int,
    vocab_size: int,
) -> dict[str, Int32]:
    """Arrays of rows, each of some documents."""
    from mudd_core import _core

    documents = [ids for row in rows for ids in row]
    core = _core.memory_rows(
        np.concatenate([np.empty(0, np.int32), *documents]),
        np.array([ids.size for ids in documents], np.int64),
        np.array([len(row) for row in rows], np.int64),
        rule,
        seq_len,
        vocab_size,
    )
    return filled(core, parts, seq_len, 0, len(rows))
