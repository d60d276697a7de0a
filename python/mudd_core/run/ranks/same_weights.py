"""Compares the weights that several nodes hold: a flipped bit of one node would spoil the run unseen."""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mudd_core.base.errors import ReportedElsewhereError
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, is_weight
from mudd_core.run.ranks.ranks import Ranks, reported_once

INTERNAL = 70


def compare_due(ranks: Ranks, every: int, step: int) -> bool:
    """Whether there are nodes to compare behind this step."""
    return ranks.comm is not None and ranks.comm.nodes > 1 and every > 0 and step % every == 0


def compare_weights(ranks: Ranks, parts: Iterable[StatePart], step: int, *, cut: bool = False) -> None:
    """RuntimeError on all ranks (exit code 70) where a node holds other bytes than most; it names rank and weights.

    Every rank of a node reads its part of the names, and is compared with the same rank of the other nodes. Where two
    nodes differ, either may be right: both are named. cut: of the weights, which ranks have cut, experts alone have
    copies.
    """
    comm = ranks.comm
    assert comm is not None
    held = [part for part in parts if is_weight(part.name)]
    weights = {part.name: part.array for part in held if part.whole and not cut}
    own = sorted(weights)[comm.node_rank :: comm.node_size]
    dealt = {
        f"{part.name} from element {part.begin}": _digest(part.array)
        for part in held
        if part.name not in weights
    }
    found = ranks.gathered([socket.gethostname(), [_digest(weights[name]) for name in own], dealt])
    faults = _faults_of_experts(found)
    for place in range(comm.node_size):
        same = range(place, comm.world, comm.node_size)
        names = sorted(weights)[place :: comm.node_size]
        for i, name in enumerate(names):
            (most, count), *differing = Counter(found[other][1][i] for other in same).most_common()
            if differing:
                unclear = count == differing[0][1]
                odd = [other for other in same if unclear or found[other][1][i] != most]
                faults.append(f"{' or '.join(f'rank {other} on {found[other][0]}' for other in odd)}: {name}")
    if not faults:
        return
    message = (
        f"[ranks] weights: expected the same bytes on all {comm.nodes} nodes after step {step}, got different ones on "
        f"{'; '.join(faults[:4])}{f' and {len(faults) - 4} more' if len(faults) > 4 else ''}; check the memory of "
        "that machine, then run the same command again: it goes on from the last checkpoint"
    )
    raise reported_once(RuntimeError(message)) if ranks.first else ReportedElsewhereError(0, INTERNAL)


def _faults_of_experts(found: Sequence[tuple[str, Sequence[str], Mapping[str, str]]]) -> list[str]:
    """As compare_weights says it, of parts that several ranks have anywhere. found: by rank (host, ..., digests)."""
    faults = []
    for label in sorted({label for one in found for label in one[2]}):
        digests = {rank: one[2][label] for rank, one in enumerate(found) if label in one[2]}
        (most, count), *differing = Counter(digests.values()).most_common()
        if differing:
            unclear = count == differing[0][1]
            odd = [rank for rank, digest in digests.items() if unclear or digest != most]
            faults.append(f"{' or '.join(f'rank {rank} on {found[rank][0]}' for rank in odd)}: {label}")
    return faults


def _digest(weight: Array) -> str:
    return hashlib.blake2b(memoryview(weight.data).cast("B"), digest_size=16).hexdigest()
