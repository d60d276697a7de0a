"""All parts of a comparison, in order. The first run is the reference for the others."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mudd_core.base.surroundings import typed_program
from mudd_core.base.units import bytes_text, duration
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.saved_run import run_and_step
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.compared import (
    COMPARED,
    ComparedRun,
    FirstDifference,
    column_of,
    first_difference,
)
from mudd_core.tools.compare.losses import losses_part
from mudd_core.tools.compare.settings import config_part, data_part, machine_part

_NONE = "-"


def runs_part(runs: Sequence[ComparedRun]) -> Part:
    """Return the list of runs with their letters."""
    rows = [
        [run.letter, run.typed, run.records.config.name, run.records.config.model.family, run.state]
        for run in runs
    ]
    return Part("runs", [["", "run", "name", "family", "state"], *rows], words=True)


def parts_before_curves(runs: Sequence[ComparedRun]) -> list[Part]:
    """Return the parts about runs, settings and losses."""
    letters = [run.letter for run in runs]
    return [
        runs_part(runs),
        config_part(runs, letters),
        data_part(runs, letters),
        machine_part(runs, letters),
        losses_part(runs, letters),
    ]


def parts_after_curves(runs: Sequence[ComparedRun]) -> list[Part]:
    """Return the parts about first differences, speed, memory and final weights."""
    base, *others = runs
    differences = [_with_command(base, other) for other in others]
    return [*differences, speed_part(runs, [run.letter for run in runs]), hash_part(runs)]


def _with_command(base: ComparedRun, other: ComparedRun) -> Part:
    """Return the part about the first difference, with the command that names the first node that differs."""
    found = first_difference(base, other)
    part = difference_part(base, other, found)
    if found.step is None:
        return part
    command = shlex.join([*typed_program(), "diff", base.typed, other.typed])
    return replace(part, notes=[*part.notes, "The first node that differs:", f"  {command}"])


def difference_part(base: ComparedRun, other: ComparedRun, found: FirstDifference) -> Part:
    """Return the part about the first step at which a run differs from the base."""
    title = f"first difference of {base.letter} and {other.letter}"
    if not len(found.common):
        return Part(f"{title}: unknown", (), ["They have logged no common step."])
    last = int(found.common[-1])
    notes = [] if found.whole else [_periods(base, other, found)]
    if found.step is None:
        names = " and ".join(COMPARED.values())
        notes = [f"{names.capitalize()} have the same bits up to there.", *notes]
        title = f"{title}: none up to the last common step, {last:,}"
        return Part(title, (), [*notes, *_causes(base, other, found)])
    rows = [["", base.letter, other.letter]]
    for value in found.values:
        rows.append([COMPARED[value.name], _exact(value.base), _exact(value.other)])
    return Part(f"{title}: step {found.step:,}", rows, [*notes, *_causes(base, other, found)])


def _exact(value: float | None) -> str:
    return "not finite" if value is None else repr(value)


def _periods(base: ComparedRun, other: ComparedRun, found: FirstDifference) -> str:
    """Return the sentence about steps that only one run has logged."""
    periods = [run.records.config.train.log_every for run in (base, other)]
    count = len(found.common)
    text = f"Compared at the {count:,} steps that both have logged" if count > 1 else "Compared at one step"
    text += (
        f", {int(found.common[0]):,} to {int(found.common[-1]):,}" if count > 1 else f", {found.common[0]:,}"
    )
    text += f" (train.log_every {periods[0]} and {periods[1]})"
    if found.step is not None and found.step - found.before > 1:
        after = f"after step {found.before:,} and " if found.before else ""
        text += f"; the values diverge {after}by step {found.step:,}"
    return f"{text}."


def _causes(base: ComparedRun, other: ComparedRun, found: FirstDifference) -> list[str]:
    """Return sentences about batches and learning rates up to the difference."""
    last = found.step if found.step is not None else int(found.common[-1])
    notes = []
    if found.rate_step is not None and found.rate_step <= last:
        notes.append(f"The learning rate differs first at step {found.rate_step:,}.")
    if found.batch_step is not None and found.batch_step <= last:
        hashes = [run.batch_hashes[found.batch_step] for run in (base, other)]
        notes.append(
            f"The ids of the batches differ first at step {found.batch_step:,}: hash {hashes[0]} in {base.letter}, "
            f"{hashes[1]} in {other.letter}. Their rows:"
        )
        notes += [show_command(run, found.batch_step) for run in (base, other)]
    elif found.hashed:
        notes.append(f"The ids of the batches have the same hashes up to step {last:,}.")
    elif found.step is not None:
        notes.append("With log.batches=true in both, the ids of the steps would be compared too.")
    return notes


def show_command(run: ComparedRun, step: int) -> str:
    """Return the line of the command that prints the sequences of a step of a run."""
    # With --workdir the command reads the documents that the run was trained on, or says that they have changed.
    workdir = f"--workdir={run_and_step(run.typed)[0]}"
    return f"  {shlex.join([*typed_program(), 'data', 'show', workdir, f'--step={step}'])}"


def speed_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Return median tokens per second with ratios to the first run, fraction of peak, time and memory."""
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
    """Return the part that says whether the final weights are equal."""
    base, *others = runs
    notes = [f"{run.letter}: {run.final_hash or _no_hash(run)}" for run in runs]
    if not all(run.final_hash for run in runs):
        return Part("final hash", (), notes)
    unequal = [run.letter for run in others if run.final_hash != base.final_hash]
    if not unequal:
        return Part("final hash: equal", (), [base.final_hash])
    return Part(f"final hash: {', '.join(unequal)} not equal to {base.letter}", (), notes)


def _no_hash(run: ComparedRun) -> str:
    """Return the reason for a missing hash of the final weights."""
    why = "its weights are a mean of checkpoints" if run.averaged else "the run has not ended"
    return f"none, since {why}"


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
