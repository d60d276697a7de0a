"""The last and best losses of the runs, and their losses at equal steps, equal tokens and equal FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mudd_core.base.types import Float64, Int64
from mudd_core.base.units import flops_text
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.compared import ComparedRun, column_of, steps_of

_MEAN_OF = 20  # common steps over which losses are averaged
_NONE = "-"
_OTHER_STEPS = " *"
# (name, values by run (NaN: none), the steps of the values)
_Row = tuple[str, Sequence[float], Sequence[int | None]]


def losses_part(runs: Sequence[ComparedRun], letters: Sequence[str]) -> Part:
    """Return the table of losses in nats per target; for two runs, with their differences."""
    at_equal_cost = _at_equal_cost(runs)
    rows = [*_of_updates(runs), *_of_validations(runs), *at_equal_cost]
    kept = [row for row in rows if np.isfinite(row[1]).any()]
    if not kept:
        return Part("losses: none logged")
    head = ["", *letters, *([f"{letters[1]} - {letters[0]}"] if len(letters) == 2 else [])]
    notes = []
    if any(row in kept for row in at_equal_cost):
        notes.append("Losses at equal tokens or FLOPs are interpolated between logged steps.")
    if len({run.records.facts.get("vocab_size") for run in runs}) > 1:
        notes.append("Losses per token of different tokenizers are not comparable, but bits per byte are.")
    notes += _other_targets(runs)
    if any(_at_other_steps(steps) for _, _, steps in kept):
        notes.append("* The runs have these values at different steps.")
    rows_of_text = [cells for row in kept for cells in _cells(row)]
    return Part("losses (nats per target)", [head, *rows_of_text], notes)


def _cells(row: _Row) -> list[list[str]]:
    """Return the cells of a row, and of a second row with its steps if there are any."""
    name, values, steps = row
    less = values[1] - values[0] if len(values) == 2 else np.nan
    pair = len(values) == 2
    cells = [
        name + _OTHER_STEPS * _at_other_steps(steps),
        *(f"{value:.6f}" if np.isfinite(value) else _NONE for value in values),
    ]
    found = [[*cells, *([f"{less:+.6f}" if np.isfinite(less) else _NONE] if pair else [])]]
    if any(step is not None for step in steps):
        texts = (_NONE if step is None else f"{step:,}" for step in steps)
        found.append(["  at step", *texts, *([""] if pair else [])])
    return found


def _at_other_steps(steps: Sequence[int | None]) -> bool:
    """Return whether the values of a row are from different steps."""
    return len({step for step in steps if step is not None}) > 1


def _other_targets(runs: Sequence[ComparedRun]) -> list[str]:
    """Return a sentence if validations have different numbers of targets."""
    counts = [column_of(run.validations, "targets")[-1:] for run in runs]
    known = [int(count[0]) for count in counts if len(count) and np.isfinite(count[0])]
    if len(set(known)) < 2:
        return []
    return [f"Validations have different numbers of targets: {', '.join(f'{count:,}' for count in known)}."]


def _of_updates(runs: Sequence[ComparedRun]) -> list[_Row]:
    tables = [run.updates for run in runs]
    common, rows = _common(tables), list[_Row]()
    count = min(_MEAN_OF, len(common) // 4)
    if count > 1:  # losses of one batch each are noisy
        steps = common[-count:]
        means = [float(np.mean(_at(table, "loss", steps))) for table in tables]
        rows.append((f"training, mean of {count} rows to {steps[-1]:,}", means, [None] * len(runs)))
    return [*rows, *_ends("training", tables, "loss", common), _best("training, best", tables, "loss")]


def _of_validations(runs: Sequence[ComparedRun]) -> list[_Row]:
    tables = [run.validations for run in runs]
    return [
        *_ends("validation", tables, "val_loss", _common(tables)),
        _best_validation(runs),
        _best("bits per byte, best", tables, "val_bits_per_byte"),
    ]


def _ends(kind: str, tables: Sequence[Metrics], name: str, common: Int64) -> list[_Row]:
    """Return a row at the last common step, and one at the last step of each run if these differ."""
    rows: list[_Row] = []
    if len(common):
        values = [float(_at(table, name, common[-1:])[0]) for table in tables]
        rows.append((f"{kind}, step {common[-1]:,}", values, [None] * len(tables)))
    if not len(common) or any(table["step"][-1] != common[-1] for table in tables):
        rows.append(_last(f"{kind}, last", tables, name))
    return rows


def _at_equal_cost(runs: Sequence[ComparedRun]) -> list[_Row]:
    """Return rows at equal tokens and at equal FLOPs, for runs whose steps have different costs."""
    rows = []
    if len({run.tokens_per_step for run in runs}) > 1:
        rows += _at_spent(runs, [1.0 * run.tokens_per_step for run in runs], lambda v: f"{v:,.0f} tokens")
    per_token = [run.flops_per_token for run in runs]
    if None not in per_token and len(set(per_token)) > 1:
        costs = [(one or 0.0) * run.tokens_per_step for one, run in zip(per_token, runs, strict=True)]
        rows += _at_spent(runs, costs, flops_text)
    return rows


def _at_spent(
    runs: Sequence[ComparedRun], a_step: Sequence[float], text: Callable[[float], str]
) -> list[_Row]:
    """Return the losses at the smallest total cost of any run, interpolated between logged steps."""
    rows: list[_Row] = []
    for kind, name, tables in (
        ("training", "loss", [run.updates for run in runs]),
        ("validation", "val_loss", [run.validations for run in runs]),
    ):
        if all(table.rows and name in table for table in tables):
            ends = [table["step"][-1] * cost for table, cost in zip(tables, a_step, strict=True)]
            spent = float(min(ends))
            values = [
                _interpolated(table, name, spent / cost) for table, cost in zip(tables, a_step, strict=True)
            ]
            rows.append((f"{kind}, {text(spent)}", values, [None] * len(runs)))
    return rows


def _interpolated(table: Metrics, name: str, step: float) -> float:
    """Return the interpolated value at a step; NaN before the first logged value."""
    finite = np.isfinite(table[name])
    if not finite.any():
        return np.nan
    return float(np.interp(step, table["step"][finite], table[name][finite], left=np.nan))


def _last(title: str, tables: Sequence[Metrics], name: str) -> _Row:
    places = [table.rows - 1 if name in table and table.rows else None for table in tables]
    return _row_at(title, tables, name, places)


def _best(title: str, tables: Sequence[Metrics], name: str) -> _Row:
    places = [
        int(np.nanargmin(table[name])) if name in table and np.isfinite(table[name]).any() else None
        for table in tables
    ]
    return _row_at(title, tables, name, places)


def _best_validation(runs: Sequence[ComparedRun]) -> _Row:
    found = [run.records.best_validation for run in runs]
    losses = [np.nan if best is None else best[0] for best in found]
    return "validation, best", losses, [None if best is None else best[1] for best in found]


def _row_at(title: str, tables: Sequence[Metrics], name: str, places: Sequence[int | None]) -> _Row:
    pairs = list(zip(tables, places, strict=True))
    values = [np.nan if place is None else float(table[name][place]) for table, place in pairs]
    return title, values, [None if place is None else int(table["step"][place]) for table, place in pairs]


def _common(tables: Sequence[Metrics]) -> Int64:
    """Return the steps that all tables have."""
    found = steps_of(tables[0])
    for table in tables[1:]:
        found = np.intersect1d(found, steps_of(table))
    return found


def _at(table: Metrics, name: str, steps: Int64) -> Float64:
    """Return the values at steps of the table; NaN without such a column."""
    found: Float64 = column_of(table, name)[np.searchsorted(steps_of(table), steps)]
    return found
