"""Speed, memory and final hashes of the runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core.base.units import bytes_text, duration
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare.compared import ComparedRun, column_of
from mudd_core.tools.compare.part import Part

_NONE = "-"


def speed_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Median tokens per second with ratios to the first run, fraction of peak, time and memory."""
    speeds = [_median(run.updates, "tokens_per_second") for run in runs]
    rows = [
        ["tokens/s, median", *(_NONE if np.isnan(speed) else f"{speed:,.0f}" for speed in speeds)],
        [f"ratio to {letters[0]}", *(_ratio(speed, speeds[0]) for speed in speeds)],
        ["of peak, median", *(_percentage(_median(run.updates, "peak_share")) for run in runs)],
        ["time", *(_time(run.updates) for run in runs)],
        ["peak of memory", *(bytes_text(run.peak_memory) if run.peak_memory else _NONE for run in runs)],
    ]
    kept = [row for row in rows if set(row[1:]) != {_NONE}]
    return Part("speed and memory", [["", *letters], *kept] if kept else [])


def hash_part(runs: Sequence[ComparedRun]) -> Part:
    """Whether the weights at the end are equal."""
    base, *others = runs
    notes = [f"{run.letter}: {run.final_hash or 'none, since the run has not ended'}" for run in runs]
    if not all(run.final_hash for run in runs):
        return Part("final hash", (), notes)
    unequal = [run.letter for run in others if run.final_hash != base.final_hash]
    if not unequal:
        return Part("final hash: equal", (), [base.final_hash])
    return Part(f"final hash: {', '.join(unequal)} not equal to {base.letter}", (), notes)


def _median(table: Metrics, name: str) -> float:
    found = column_of(table, name)
    finite = found[np.isfinite(found)]
    return float(np.median(finite)) if len(finite) else np.nan


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.3f}" if np.isfinite(value) and base > 0 else _NONE


def _percentage(value: float) -> str:
    return f"{value:.0%}" if np.isfinite(value) else _NONE


def _time(table: Metrics) -> str:
    seconds = column_of(table, "seconds")
    return duration(float(seconds[-1])) if len(seconds) and np.isfinite(seconds[-1]) else _NONE
