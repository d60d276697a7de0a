"""The line of a plan that draws the learning rate over the run."""

from __future__ import annotations

from mudd_core.base.show.terminal import Screen, screen
from mudd_core.config import Config
from mudd_core.config.phases import parse_phases
from mudd_core.engine.optimizer_groups import learning_rate

_COLUMNS = 60
_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # one eighth of a cell to a whole one
_DIGITS = "0123456789"


def schedule_lines(config: Config, steps: int | None, shown: Screen | None = None) -> list[str]:
    """Return lines with the rates of all updates as a curve; none if only the data decide the number of updates.

    shown: the terminal; None: standard output. A UTF-8 terminal shows blocks, others digits from 0 to 9, the peak.
    """
    if steps is None or steps < 1:
        return []
    columns = min(_COLUMNS, steps)
    at = [column * (steps - 1) // max(1, columns - 1) for column in range(columns)]
    rates = [learning_rate(config, t) for t in at]
    peak, before = max((learning_rate(config, t), -t) for t in {*at, *_corners(config, steps)})
    marks = _BLOCKS if (shown or screen()).fine else _DIGITS
    curve = "".join(marks[round(rate / peak * (len(marks) - 1)) if peak > 0 else 0] for rate in rates)
    return [
        f"  schedule      {curve}",
        f"                lr {rates[0]:.3g} at update 1, {peak:.3g} at {1 - before:,}, {rates[-1]:.3g} at {steps:,} "
        f"({config.optim.schedule})",
    ]


def _corners(config: Config, steps: int) -> list[int]:
    """Return the updates at which the warm-up or a phase starts or ends: the largest rate is there."""
    optim = config.optim
    ends, found = 0, [optim.warmup_steps]
    for _, length, _, _ in parse_phases(optim.phases, config.schedule_steps) if optim.phases else []:
        ends += length
        found.append(ends)
    return [t for end in found for t in (end - 1, end) if 0 <= t < steps]
