"""The files of a run, read once for all sections of the page."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Float64, Int64, JsonObject
from mudd_core.checkpoint import is_weight
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.config import Config
from mudd_core.run.records.events import Validations
from mudd_core.run.records.facts import guessing_loss, vocabulary_in_use
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import facts_of, read_object
from mudd_core.run.store.lease import is_alive
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row, events_of, rows_of
from mudd_core.run.store.run_folder import LEASE, LOCK, RunFolder

Places: TypeAlias = "Mapping[str, Float64]"
# The quantities that a chart can have on its x axis, as the page's switch names them; the first is the default.
ACROSS = ("steps", "tokens", "minutes")


@dataclass(frozen=True)
class Records:
    """A run's config and files. updates, validations: columns from metrics.jsonl. events: from events.jsonl.

    batch_hashes: the hash of each step's token ids, by step; empty without log.batches."""

    folder: RunFolder
    config: Config
    updates: Metrics
    validations: Metrics
    events: Sequence[JsonObject] = ()
    facts: JsonObject = field(default_factory=dict)  # run.json
    summary: JsonObject = field(default_factory=dict)  # summary.json: how the last call of fit() ended
    checkpoints: Sequence[int] = ()
    running: bool = False
    batch_hashes: Mapping[int, str] = field(default_factory=dict)

    def places(self, steps: Float64 | Int64) -> Places:
        """Return the x coordinates of steps for each name of ACROSS, interpolated between logged updates."""
        known, tokens, seconds = self._clock
        return {
            "steps": np.asarray(steps, np.float64),
            "tokens": np.interp(steps, known, tokens),
            "minutes": np.interp(steps, known, seconds / 60),
        }

    @cached_property
    def last_step(self) -> int:
        """The last step that has a log entry or a checkpoint; 0 without any."""
        rows = [int(table["step"][-1]) for table in (self.updates, self.validations) if table.rows]
        return max([*rows, *self.checkpoints], default=0)

    @cached_property
    def parameters(self) -> int:
        """The parameter count of the newest readable checkpoint; 0 without one."""
        for step in reversed(self.checkpoints):
            try:
                tensors = read_manifest(self.folder.step_folder(step)).tensors
            except (OSError, ValueError, UserError):
                continue
            return sum(math.prod(tensor.shape) for name, tensor in tensors.items() if is_weight(name))
        return 0

    @property
    def ending(self) -> JsonObject:
        """The content of summary.json; empty if the run has continued since."""
        step = self.summary.get("step")
        last = max(
            (int(table["step"][-1]) for table in (self.updates, self.validations) if table.rows), default=0
        )
        newest = isinstance(step, int) and step >= last and not self.running
        return self.summary if newest else {}

    @cached_property
    def best_validation(self) -> tuple[float, int] | None:
        """The loss (nats) and step of the best validation; None if that loss is above the loss of guessing.

        They are from summary.json, or from the recorded validations of a run in progress.
        """
        best = self._lowest_validation
        return best if best is not None and best[0] <= guessing_loss(vocabulary_in_use(self.facts)) else None

    @property
    def _lowest_validation(self) -> tuple[float, int] | None:
        loss, step = self.ending.get("best_val_loss"), self.ending.get("best_step")
        if isinstance(loss, float) and isinstance(step, int):
            return loss, step
        losses = (np.asarray(self.validations.get(name, ())).tolist() for name in ("step", "val_loss"))
        return Validations(zip(*losses, strict=False)).best

    @property
    def out_of_patience(self) -> bool:
        """True if train.patience has ended the run."""
        return self.ending.get("out_of_patience") is True

    @cached_property
    def _clock(self) -> tuple[Float64, Float64, Float64]:
        """Arrays of steps, and of the tokens and seconds of the run up to each; they start at step 0."""
        columns = [self.updates.get(name, np.zeros(0)) for name in ("step", "tokens", "seconds")]
        rows = min(map(len, columns))
        steps, tokens, seconds = (
            np.concatenate([[0.0], np.asarray(column[:rows], np.float64)]) for column in columns
        )
        return steps, np.nan_to_num(tokens), np.nan_to_num(seconds)


def read_records(folder: RunFolder, config: Config) -> Records:
    """Return the records of a run, which may be in progress, without locking it.

    Raise UserError if a file cannot be read, FormatError if it is damaged.
    """
    validations: list[Row] = []  # few; there may be a million updates, so these are not kept as dicts
    hashes: dict[int, str] = {}
    updates = Metrics.of_rows(_without(validations, _noting(hashes, rows_of(folder))))
    summary = folder.summary_file
    return Records(
        folder,
        config,
        updates,
        Metrics.of_rows(validations),
        events_of(folder),
        facts_of(folder),
        read_object(summary) if summary.exists() else {},
        Checkpoints(folder).steps(),
        is_running(folder),
        hashes,
    )


def _without(validations: list[Row], rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the entries of updates, and append the entries of validations to the list."""
    for row in rows:
        if "val_loss" in row:
            validations.append(row)
        else:
            yield row


def _noting(hashes: dict[int, str], rows: Iterable[Row]) -> Iterator[Row]:
    """Yield all entries, and add the hashes of their batches to the dict."""
    for row in rows:
        if isinstance(value := row.get("batch_hash"), str):
            hashes[row["step"]] = value
        yield row


_QUIET = 600.0  # seconds without a log entry after which a run on another host is assumed to have ended


def is_running(folder: RunFolder) -> bool:
    """Return whether the run is in progress, by its lease and lock file.

    A process on another host cannot be checked, so a recent write to metrics.jsonl decides for it.
    """
    if is_alive(folder.path / LEASE):
        return True
    try:
        holder = json.loads(read_bytes(folder.path / LOCK, links=False))
        process, host = int(holder["pid"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # no process has the lock: the file is empty between runs
    if host != socket.gethostname():
        file = folder.metrics_file
        return file.is_file() and time.time() - file.stat().st_mtime < _QUIET
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return process > 0
