"""The instruction set levels of the ranks of a job: one on each machine and, for bf16, one unit over all of them.

Bits in fp32 are the same at every level, so machines of different levels train together. Ranks of one machine share
packed weights, whose layout is the level's; bf16 matmuls have the bits of their unit.
"""

from __future__ import annotations

import os
import socket
import sys

from mudd_core import _core
from mudd_core.base.surroundings import require_levels
from mudd_core.config import Config
from mudd_core.run.ranks.rank_cores import widen_binding
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.bits import unit_of

LEVELS = tuple(_core.isa_levels())
UNITS = tuple(map(unit_of, LEVELS))


def hold_level(ranks: Ranks, config: Config) -> str:
    """Hold this rank to the level that it shares with others, before a kernel is chosen; a note where that is lower.

    Every rank calls this and gets the same note. UserError where bf16 units differ and dist.isa=same refuses that.
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
    """Hold the level of this rank and widen a narrow binding to cores, with a warning for each; every rank calls it."""
    if ranks.world == 1:
        return
    note = hold_level(ranks, config)
    narrow = ranks.first_given(widen_binding(config.train.threads) or None)
    if ranks.first:
        for text in filter(None, (note, narrow)):
            print(f"warning: {text}", file=sys.stderr, flush=True)


def hold_to(level: str) -> None:
    """Cap the level of this process."""
    os.environ["MUDD_MAX_ISA"] = level


def _own_level() -> int:
    """Return the place of this rank's level among LEVELS."""
    require_levels()
    cap = os.environ.get("MUDD_MAX_ISA") or LEVELS[-1]
    return min(LEVELS.index(cap), LEVELS.index(_core.detected_isa()))


def _highest_with(unit: str) -> int:
    return max(place for place, name in enumerate(UNITS) if name == unit)


def _note(own: list[int], held: list[int], hosts: list[str], *, bf16: bool) -> str:
    """Return which rank the others wait for, where some rank is held below its own level."""
    lowered = next((rank for rank, level in enumerate(own) if held[rank] < level), None)
    if lowered is None:
        return ""
    lowest = own.index(min(own))
    reason = "ranks of a machine share packed weights"
    if bf16 and UNITS[own[lowest]] != UNITS[own[lowered]]:
        reason = "bits in bf16 are those of the unit; dist.isa=same refuses"
    return (
        f"[ranks] rank {lowest} on {hosts[lowest]} has level {LEVELS[own[lowest]]} only, so rank {lowered} uses "
        f"{LEVELS[held[lowered]]} instead of {LEVELS[own[lowered]]}: {reason}"
    )
