"""Weights that stand on several nodes must be equal there: a flipped bit of one node would spoil the run unseen."""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Any

from mudd_core.base.errors import ReportedElsewhereError
from mudd_core.checkpoint import StatePart
from mudd_core.run.ranks import Ranks, reported_once

INTERNAL = 70


def compare_due(ranks: Ranks, every: int, step: int) -> bool:
    """Whether there are nodes to compare behind this step."""
    return ranks.comm is not None and ranks.comm.nodes > 1 and every > 0 and step % every == 0


def compare_weights(ranks: Ranks, parts: Iterable[StatePart], step: int) -> None:
    """RuntimeError on all ranks (exit code 70) where a node holds other bytes than most; it names rank and weights.

    Every rank of a node reads its share of the names, and is compared with the same rank of the other nodes. Of two
    nodes that differ nobody can say which is right: both are named.
    """
    comm = ranks.comm
    assert comm is not None
    weights = {part.name: part.array for part in parts if "/" not in part.name}
    own = sorted(weights)[comm.node_rank :: comm.node_size]
    found = ranks.gathered([socket.gethostname(), [_digest(weights[name]) for name in own]])
    faults = []
    for place in range(comm.node_size):
        peers = range(place, comm.world, comm.node_size)
        names = sorted(weights)[place :: comm.node_size]
        for i, name in enumerate(names):
            (most, count), *others = Counter(found[peer][1][i] for peer in peers).most_common()
            if others:
                unclear = count == others[0][1]
                odd = [peer for peer in peers if unclear or found[peer][1][i] != most]
                faults.append(f"{' or '.join(f'rank {peer} on {found[peer][0]}' for peer in odd)}: {name}")
    if not faults:
        return
    message = (
        f"[ranks] weights: expected the same bytes on all {comm.nodes} nodes after step {step}, got others on "
        f"{'; '.join(faults[:4])}{f' and {len(faults) - 4} more' if len(faults) > 4 else ''}; check the memory of "
        "that machine, then run the same command again: it goes on from the last checkpoint"
    )
    raise reported_once(RuntimeError(message)) if ranks.first else ReportedElsewhereError(0, INTERNAL)


def _digest(weight: Any) -> str:
    return hashlib.blake2b(memoryview(weight).cast("B"), digest_size=16).hexdigest()
