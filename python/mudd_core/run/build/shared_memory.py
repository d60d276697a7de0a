"""The shared memory of a node: a check that it is large enough for the ranks, and the alternative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mudd_core.config import ModelConfig
from mudd_core.engine import memory
from mudd_core.engine.memory import MIB
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import Place
from mudd_core.run.ranks.ranks import Ranks

WINDOW = 64 * MIB  # smallest size of shared weights, and of shared packed weights (node_memory.h)


def fit_node(plan: MemoryPlan, ranks: Ranks) -> str:
    """Make every rank a separate node if a node has too little shared memory; return a warning in this case, else "".

    All ranks must call this before the model is created. plan: the plan for a node with shared memory.
    """
    comm = ranks.comm
    if comm is None or comm.node_size == 1:
        return ""
    need = _shared_bytes(plan)
    free, on_a_node = min(ranks.gathered(comm.shared_bytes_free)), comm.node_size
    if need <= free:
        return ""

    def check() -> None:
        private = replace(plan, place=Place(comm.world, 1)).bytes()
        memory.require(
            on_a_node * sum(private.values()),
            f"training with {on_a_node} ranks that have private weights",
            lambda _: f"/dev/shm of {-(-need // MIB)} MiB lets them share (docker run --shm-size=...)",
        )

    ranks.together(check)
    comm.split_nodes()
    return _split_text(free, need)


def fit_weights(shape: ModelConfig, stored: Mapping[str, str], ranks: Ranks) -> str:
    """Do the same as fit_node for a model that is not trained: only its weights are shared."""
    comm = ranks.comm
    if comm is None or comm.node_size == 1:
        return ""
    from mudd_core.engine.model import Model

    need = Model(shape, booked_only=True, stored=stored).store.plane_bytes + 2 * WINDOW
    free = min(ranks.gathered(comm.shared_bytes_free))
    if need <= free:
        return ""
    comm.split_nodes()
    return _split_text(free, need)


def _split_text(free: int, need: int) -> str:
    return (
        f"[ranks] /dev/shm has {free // MIB} MiB free, shared memory needs {-(-need // MIB)} MiB: ranks of one host "
        "exchange messages instead, with private weights (docker run --shm-size=...)"
    )


def _shared_bytes(plan: MemoryPlan) -> int:
    """Return the bytes of a node's shared memory: one copy of the weights, and the gradients of every rank."""
    report = plan.bytes()
    weights = report["weights"] + report["packed"]
    return plan.place.on_a_node * (weights + report["gradients"]) + 2 * WINDOW
