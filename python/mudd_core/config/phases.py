"""The phases of a learning rate schedule, which `optim.phases` spells as KIND:STEPS:FROM:TO,..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.config.values import number, whole

if TYPE_CHECKING:
    from mudd_core.config.optim import OptimConfig

KINDS = tuple(_core.phases_of_schedules())
REST = "rest"
_FORM = "expected phases KIND:STEPS:FROM:TO such as linear:100:0:1,constant:500:1,cosine:rest:1:0.1"

Phase = tuple[str, int, float, float]  # kind, updates, first and last factor of optim.lr


def parse_phases(text: str, steps: int) -> list[Phase]:
    """Parse phases separated by commas; raise ValueError for a malformed string.

    steps: the length of the schedule, of which a last phase of `rest` has what the others leave. The factor TO is
    reached just after the last update of a phase; it may be omitted, and is then FROM.
    """
    found: list[Phase] = []
    words = [word.strip() for word in text.split(",")]
    for place, word in enumerate(words, 1):
        found.append(_phase(word, steps - sum(one[1] for one in found), last=place == len(words)))
    return found


def _phase(word: str, left: int, *, last: bool) -> Phase:
    kind, *parts = (part.strip() for part in word.split(":"))
    if kind not in KINDS or not 2 <= len(parts) <= 3:
        raise ValueError(f"{_FORM}, with kinds {', '.join(KINDS)}, got '{word}'")
    if parts[0] == REST:
        if not last:
            raise ValueError(
                f"expected {REST} as the steps of the last phase only, got '{word}' before another one"
            )
        if left < 1:
            raise ValueError(
                f"expected updates that are left for '{word}', but the phases before it have all updates of the "
                "schedule; lower their steps, or raise train.steps"
            )
    length = left if parts[0] == REST else whole("steps", parts[0], 1)
    first, end = (
        number(name, part, 0.0) for name, part in zip(("from", "to"), (parts + parts[-1:])[1:3], strict=True)
    )
    if kind == "constant" and first != end:
        raise ValueError(f"expected one factor for a constant phase, got '{word}'")
    if kind == "inverse_sqrt" and not (first > 0 and end > 0):
        raise ValueError(f"expected factors above 0 for inverse_sqrt, got '{word}'")
    return kind, length, first, end


def phase_faults(optim: OptimConfig, steps: int) -> list[str]:
    """Return the errors in optim.phases, and in fields that describe another schedule.

    steps: train.steps. One of optim.phases and optim.schedule=phases is set.
    """
    if optim.schedule != "phases":
        return [f"optim.phases: expected optim.schedule=phases with it, got {optim.schedule}"]
    if not optim.phases:
        return [
            "optim.phases: expected phases for optim.schedule=phases, such as linear:100:0:1,cosine:rest:1:0.1"
        ]
    faults = []
    for name in ("warmup_steps", "decay_steps"):
        if getattr(optim, name):
            faults.append(
                f"optim.{name}: expected 0 for optim.schedule=phases, got {getattr(optim, name)}; add "
                f"optim.{name}=0, and write these updates as a phase"
            )
    try:
        parse_phases(optim.phases, optim.schedule_steps or steps)
    except ValueError as fault:
        faults.append(f"optim.phases: {fault}")
    return faults
