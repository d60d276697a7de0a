"""What a resume reads of metrics.jsonl: the validations up to its step, and how fast the last steps were."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from mudd_core.base.members import build
from mudd_core.base.regular_files import open_binary
from mudd_core.run.records.events import Validation
from mudd_core.run.store.metrics import Row, row_in, rows_of
from mudd_core.run.store.run_folder import RunFolder

_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class RecordedValidations:
    """Validations in metrics.jsonl up to a step.

    losses: steps and losses, NaN for one that was not finite. last: the validation of that step, if it has one.
    """

    losses: list[tuple[int, float]]
    last: Validation | None


def validations_of(folder: RunFolder, step: int) -> RecordedValidations:
    """The validations of metrics.jsonl up to a step; FormatError if the row of the step itself is not one."""
    rows = [row for row in rows_of(folder) if "val_loss" in row and row["step"] <= step]
    here = [row for row in rows if row["step"] == step]
    where = f"validation of step {step}: "
    last = build(Validation, here[-1], folder.metrics_file, where) if here else None
    return RecordedValidations([(row["step"], _loss_of(row)) for row in rows], last)


def _loss_of(row: Row) -> float:
    """The loss of a validation; NaN where it was not finite."""
    loss = row["val_loss"]
    return float(loss) if isinstance(loss, int | float) else math.nan


def last_peak_share(folder: RunFolder) -> float | None:
    """The fraction of the peak in the last training row of metrics.jsonl; None where its end has none."""
    try:
        with open_binary(folder.metrics_file, links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        row = row_in(line)
        share = None if isinstance(row, str) else row.get("peak_share")
        if isinstance(share, float) and share > 0:
            return share
    return None
