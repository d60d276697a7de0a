"""Folders of runs whose logs are generated, with any length and content; nothing is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, load_config
from mudd_core.run.report.page.records import Records, read_records
from mudd_core.run.store.json_files import read_saved_config, write_config, write_facts
from mudd_core.run.store.run_folder import RunFolder


def update(step: int, loss: float | None = None, **more: Json) -> JsonObject:
    """Return the log entry of an update."""
    value = 2.0 + 5.0 * math.exp(-step / 200) if loss is None else loss
    return {
        "step": step,
        "tokens": 1024 * step,
        "loss": value,
        "lr": 1e-3,
        "grad_norm": 0.5 + 1 / step,
        "tokens_per_second": 10_000.0 + step % 7,
        "peak_share": 0.4,
        "seconds": 0.1 * step,
        **more,
    }


def validation(step: int, loss: float) -> JsonObject:
    """Return the log entry of a validation."""
    return {
        "step": step,
        "val_loss": loss,
        "val_bits_per_byte": loss / 2,
        "val_ppl": math.exp(loss),
        "val_accuracy": 0.3,
        "targets": 100,
        "seconds": 1.5,
    }


def write_run(
    path: Path,
    rows: Iterable[JsonObject],
    events: Iterable[JsonObject] = (),
    *words: str,
    config: Config | None = None,
) -> RunFolder:
    """Write a work directory with these logs."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    write_config(folder, config or load_config("tiny.py", list(words)))
    write_facts(folder, {"run_id": "0123456789abcdef", "started": "2026-01-01T10:00:00+0000"})
    folder.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.events_file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def records_of(folder: RunFolder, config: Config | None = None) -> Records:
    """Return the records of a folder that write_run has written."""
    return read_records(folder, config or read_saved_config(folder))
