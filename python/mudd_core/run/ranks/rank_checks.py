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
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from mudd_core import _core
from mudd_core.base.errors import ReportedElsewhereError
from mudd_core.base.surroundings import require_levels
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, is_weight
from mudd_core.config import Config
from mudd_core.run.ranks.rank_cores import widen_binding
from mudd_core.run.ranks.ranks import Ranks, reported_once
from mudd_core.run.records.facts import unit_of

_Machine: TypeAlias = tuple[Sequence[str], int, str]  # of a rank: its levels, the lowest first; node; host


def hold_level(ranks: Ranks, config: Config) -> str:
    """Cap this rank at the level that all ranks share, before kernels are chosen. Return a note if this lowers a level.

    Every rank calls this and gets the same note. Raise UserError if bf16 instructions differ and dist.isa=same.
    """
    own, node = ranks.together(_own_levels), ranks.comm.node if ranks.comm is not None else 0
    # A rank sends the names of its levels, because a machine of another architecture has other levels.
    found: list[_Machine] = [
        (levels, where, host) for levels, where, host in ranks.gathered([own, node, socket.gethostname()])
    ]
    held = [min((levels for levels, other, _ in found if other == where), key=len) for _, where, _ in found]
    bf16 = config.train.precision == "bf16"
    if bf16:
        if config.dist.isa == "same":
            ranks.agree({"bf16 unit (dist.isa=same)": unit_of(own[-1])})
        common = set.intersection(*({*map(unit_of, levels)} for levels in held))
        held = [_with_units(levels, common) for levels in held]
    if len(mine := held[ranks.rank]) < len(own):
        hold_to(mine[-1])
    return _note(found, held, bf16=bf16)


def hold_machine(ranks: Ranks, config: Config) -> None:
    """Lower this rank to the instruction set of all ranks, and bind it to more cores if its threads need them.

    Each change prints a warning. Every rank must call this.
    """
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


def _own_levels() -> list[str]:
    """Return the names of this rank's levels, the lowest first."""
    require_levels()
    levels = _core.isa_levels()
    cap = os.environ.get("MUDD_MAX_ISA") or levels[-1]
    return levels[: 1 + min(levels.index(cap), levels.index(_core.detected_isa()))]


def _with_units(levels: Sequence[str], units: Set[str]) -> Sequence[str]:
    """Return the levels up to the highest one with one of these bf16 instructions."""
    return levels[: 1 + max(place for place, name in enumerate(levels) if unit_of(name) in units)]


def _note(found: Sequence[_Machine], held: Sequence[Sequence[str]], *, bf16: bool) -> str:
    """Return a note about a rank that lowers the level of another; empty if there is none."""
    own = [levels for levels, _, _ in found]
    lowered = next((rank for rank, levels in enumerate(own) if len(held[rank]) < len(levels)), None)
    if lowered is None:
        return ""
    before, after = own[lowered][-1], held[lowered][-1]
    units = [[*dict.fromkeys(map(unit_of, levels))] for levels in own]
    if bf16 and unit_of(before) != unit_of(after):
        lacking = [rank for rank, known in enumerate(units) if unit_of(before) not in known]
        lowest = min(lacking, key=lambda rank: len(units[rank]))
        reason = "bits in bf16 depend on the CPU's instructions; dist.isa=same refuses"
    else:
        node = found[lowered][1]
        lowest = next(
            rank for rank, (levels, where, _) in enumerate(found) if (levels[-1], where) == (after, node)
        )
        reason = "ranks of a machine share packed weights"
    return (
        f"[ranks] rank {lowest} on {found[lowest][2]} has level {own[lowest][-1]} only, so rank {lowered} uses "
        f"{after} instead of {before}: {reason}"
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
    """Return the faults in parts of several ranks. found: (host, ..., digests) by rank, as in compare_weights."""
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
