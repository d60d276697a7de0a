"""Checks across ranks: instruction set levels, bf16 instructions, and the weights on several nodes.

fp32 results have the same bits at every level, so machines of different levels can train together. Ranks of one machine
share packed weights, whose layout depends on the level. The bits of bf16 matmuls depend on the bf16 instructions.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mudd_core import _core
from mudd_core.base.errors import ReportedElsewhereError
from mudd_core.base.surroundings import require_levels
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, is_weight
from mudd_core.config import Config
from mudd_core.run.ranks.rank_cores import widen_binding
from mudd_core.run.ranks.ranks import Ranks, reported_once
from mudd_core.run.records.facts import unit_of

LEVELS = tuple(_core.isa_levels())
UNITS = tuple(map(unit_of, LEVELS))


def hold_level(ranks: Ranks, config: Config) -> str:
    """Cap this rank at the level that all ranks share, before kernels are chosen. Return a note if this lowers a level.

    Every rank calls this and gets the same note. Raise UserError if bf16 instructions differ and dist.isa=same.
    """
    own, node = ranks.together(_own_level), ranks.comm.node if ranks.comm is not None else 0
    found = [(level, where, host) for level, where, host in ranks.gathered([own, node, socket.gethostname()])]
    levels = [min(level for level, other, _ in found if other == where) for _, where, _ in found]
    bf16 = config.train.precision == "bf16"
    if bf16:
        if config.dist.isa == "same":
            ranks.agree({"bf16 unit (dist.isa=same)": UNITS[own]})
        unit = UNITS[min(levels)]
        levels = [min(level, _highest_with(unit)) for level in levels]
    if (held := levels[ranks.rank]) < own:
        hold_to(LEVELS[held])
    return _note([level for level, _, _ in found], levels, [host for _, _, host in found], bf16=bf16)


def hold_machine(ranks: Ranks, config: Config) -> None:
    """Cap this rank's level and widen a narrow core binding, with a warning for each; every rank must call this."""
    if ranks.world == 1:
        return
    note = hold_level(ranks, config)
    narrow = ranks.first_given(widen_binding(config.train.threads) or None)
    if ranks.first:
        for text in filter(None, (note, narrow)):
            print(f"warning: {text}", file=sys.stderr, flush=True)


def hold_to(level: str) -> None:
    """Cap the instruction set level of this process."""
    os.environ["MUDD_MAX_ISA"] = level


def _own_level() -> int:
    """Return the index of this rank's level in LEVELS."""
    require_levels()
    cap = os.environ.get("MUDD_MAX_ISA") or LEVELS[-1]
    return min(LEVELS.index(cap), LEVELS.index(_core.detected_isa()))


def _highest_with(unit: str) -> int:
    return max(place for place, name in enumerate(UNITS) if name == unit)


def _note(own: list[int], held: list[int], hosts: list[str], *, bf16: bool) -> str:
    """Return a note about the rank with the lowest level, if it lowers the level of others."""
    lowered = next((rank for rank, level in enumerate(own) if held[rank] < level), None)
    if lowered is None:
        return ""
    lowest = own.index(min(own))
    reason = "ranks of a machine share packed weights"
    if bf16 and UNITS[own[lowest]] != UNITS[own[lowered]]:
        reason = "bits in bf16 depend on the CPU's instructions; dist.isa=same refuses"
    return (
        f"[ranks] rank {lowest} on {hosts[lowest]} has level {LEVELS[own[lowest]]} only, so rank {lowered} uses "
        f"{LEVELS[held[lowered]]} instead of {LEVELS[own[lowered]]}: {reason}"
    )


INTERNAL = 70


def compare_due(ranks: Ranks, every: int, step: int) -> bool:
    """Return True if nodes should be compared after this step."""
    return ranks.comm is not None and ranks.comm.nodes > 1 and every > 0 and step % every == 0


def compare_weights(ranks: Ranks, parts: Iterable[StatePart], step: int, *, cut: bool = False) -> None:
    """Raise RuntimeError on all ranks (exit code 70), with rank and weights, if a node has other weights than most.

    Every rank of a node hashes its part of the names, and is compared with the same rank of the other nodes. If only
    two nodes differ, both are named. cut: the weights are sharded, so only experts are on several ranks.
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
        f"[ranks] weights: expected the same bytes on all {comm.nodes} nodes after step {step}, got "
        "different bytes on "
        f"{'; '.join(faults[:4])}{f' and {len(faults) - 4} more' if len(faults) > 4 else ''}; check "
        "the memory of that machine, then run the same command again: it resumes from the last "
        "checkpoint"
    )
    raise reported_once(RuntimeError(message)) if ranks.first else ReportedElsewhereError(0, INTERNAL)


def _faults_of_experts(found: Sequence[tuple[str, Sequence[str], Mapping[str, str]]]) -> list[str]:
    """Return faults like compare_weights, for parts that several ranks have. found: by rank: (host, ..., digests)."""
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
