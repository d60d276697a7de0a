"""Shared memory of a node: whether what its ranks share fits into it, and what they do instead."""

from __future__ import annotations

from pathlib import Path

from mudd_core.config import Config, ModelConfig
from mudd_core.engine import memory
from mudd_core.engine.memory import MIB
from mudd_core.run.build.booking import Place, planned_bytes
from mudd_core.run.ranks.ranks import Ranks

_WINDOW = 64 * MIB  # the least that weights, and packed weights, are given (node_memory.h)


def fit_node(shape: ModelConfig, config: Config, ranks: Ranks, checkpoints: Path | None = None) -> str:
    """Make every rank a node of its own where some node has too little shared memory; a warning if so, else "".

    All ranks call it, before the model is made.
    """
    comm = ranks.comm
    if comm is None or comm.node_size == 1:
        return ""
    need = _shared_bytes(shape, config, Place(comm.world, comm.node_size), checkpoints)
    free, on_a_node = min(ranks.gathered(comm.shared_bytes_free)), comm.node_size
    if need <= free:
        return ""

    def check() -> None:
        private = planned_bytes(shape, config, checkpoints, Place(comm.world, 1))
        memory.require(
            on_a_node * sum(private.values()),
            f"training by {on_a_node} ranks with private weights",
            lambda _: f"/dev/shm of {-(-need // MIB)} MiB lets them share (docker run --shm-size=...)",
        )

    ranks.together(check)
    comm.split_nodes()
    return (
        f"[ranks] /dev/shm has {free // MIB} MiB free, shared memory needs {-(-need // MIB)} MiB: ranks of one host "
        "exchange messages instead, with private weights (docker run --shm-size=...)"
    )


def _shared_bytes(shape: ModelConfig, config: Config, place: Place, checkpoints: Path | None) -> int:
    """Bytes of the windows of a node: one copy of the weights, and the gradients of every rank."""
    report = planned_bytes(shape, config, checkpoints, place)
    weights = report["weights"] + report["packed"]
    return place.on_a_node * (weights + report["gradients"]) + 2 * _WINDOW
