"""Weights that several nodes have are compared; a node with different weights is named.

The test changes a frozen weight: every step copies a trained weight from its owner to all other nodes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core.base.errors import ReportedElsewhereError
from mudd_core.run.loop.trainer import Trainer
from rank_runs import config_of, on_ranks
from tiny_mixture_config import get_config


def train(
    text: Path, world: int, node_size: int, flips: int | None = 3, name: str = "embed", **fields: Any
) -> list[str]:
    """Return the result of each rank if rank `flips` flips one bit of this weight after step 3."""

    def work(comm: Any) -> str:
        settings = {
            "dist.compare_every": 2,
            "train.trainable": "head",
            "train.steps": 6,
            "train.eval_every": 0,
            **fields,
        }
        with Trainer(config_of(text, **settings), comm=comm) as run:
            for _ in range(3):
                run.step()
            if comm.rank == flips:
                parts = run.engine.state_parts(writable=True)
                part = next(part for part in parts if part.name == name)
                array = np.array(part.array)
                array.reshape(-1).view(np.uint32)[7] ^= 1 << 3
                part.array[...] = array
            try:
                run.step()
            except ReportedElsewhereError as error:
                return str(error.exit_code)
            except RuntimeError as error:
                return str(error)
        return "same"

    return on_ranks(work, world, node_size)


def test_a_flipped_bit_of_one_node_is_found_and_its_rank_named(tiny_text: Path) -> None:
    first, *others = train(tiny_text, 4, 1)
    assert "got different bytes on rank 3 on " in first and "after step 4" in first, first
    assert others == ["70"] * 3


@pytest.mark.parametrize("node_size", [1, 2])
def test_of_two_nodes_both_are_named(tiny_text: Path, node_size: int) -> None:
    first, *_ = train(tiny_text, 2 * node_size, node_size, 1 if node_size == 1 else 3)
    assert "rank 0 on " in first and f" or rank {node_size} on " in first, first


@pytest.mark.parametrize("zero", [1, 3])
def test_copies_of_experts_are_compared(tiny_text: Path, zero: int) -> None:
    fields = {"model": get_config().model, "mesh.expert": 2, "mesh.zero": zero}
    first, *others = train(tiny_text, 4, 1, 3, "blocks.1.ffn.up.w", **fields)
    assert re.search(r"on rank 1 on \S+ or rank 3 on \S+: blocks.1.ffn.up.w from element 8192;", first), first
    assert others == ["70"] * 3
    assert train(tiny_text, 4, 1, None, **fields) == ["same"] * 4


def test_nodes_that_agree_go_on(tiny_text: Path) -> None:
    assert train(tiny_text, 4, 2, None) == ["same"] * 4
