"""The values of a comparison for `compare --json`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import differences
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare.compared import ComparedRun, column_of, first_difference, steps_of


def comparison_values(runs: Sequence[ComparedRun]) -> JsonObject:
    """Return the runs, and the differences of each other run from the first one."""
    base, *others = runs
    return {
        "runs": [_run(run) for run in runs],
        "differences": [_differences(base, run) for run in others],
    }


def _run(run: ComparedRun) -> JsonObject:
    best_step, best = _best(run.validations)
    last = _column(run.updates, "loss")
    return {
        "letter": run.letter,
        "path": run.typed,
        "state": run.state,
        "step": run.last_step,
        "steps": run.records.config.train.steps,
        "tokens_per_step": run.tokens_per_step,
        "flops_per_token": run.flops_per_token,
        "loss": last[-1] if last else None,
        "best_val_loss": best,
        "best_val_step": best_step,
        "tokens_per_second": _median(run.updates, "tokens_per_second"),
        "peak_memory": run.peak_memory or None,
        "final_hash": run.final_hash or None,
    }


def _differences(base: ComparedRun, run: ComparedRun) -> JsonObject:
    found = first_difference(base, run)
    fields: list[Json] = [
        {"field": one.path, "base": one.saved, "other": one.asked}
        for one in differences(base.records.config, run.records.config)
    ]
    values: list[Json] = [
        {"name": value.name, "base": value.base, "other": value.other} for value in found.values
    ]
    return {
        "letter": run.letter,
        "fields": fields,
        "common_steps": len(found.common),
        "first_step": found.step,
        "last_equal_step": found.before,
        "values": values,
        "first_lr_step": found.rate_step,
        "first_batch_step": found.batch_step,
    }


def _column(table: Metrics, name: str) -> list[float]:
    return [float(one) for one in column_of(table, name)] if table.rows else []


def _median(table: Metrics, name: str) -> float | None:
    column = _column(table, name)
    return float(np.median(column)) if column else None


def _best(table: Metrics) -> tuple[int | None, float | None]:
    """Return the step and the value of the lowest validation loss; None without a finite one."""
    losses = _column(table, "val_loss")
    finite = [
        (loss, int(step)) for loss, step in zip(losses, steps_of(table), strict=True) if np.isfinite(loss)
    ]
    loss, step = min(finite, default=(None, None))
    return step, loss
