"""What a run has written, read once for all sections of the page."""

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
from mudd_core.run.store.metrics import Row, rows_of
from mudd_core.run.store.run_folder import LEASE, LOCK, RunFolder

Places: TypeAlias = "Mapping[str, Float64]"
# What a chart can have across, by the word of the page's switch; the first one is shown first.
ACROSS = ("steps", "tokens", "minutes")
WHOLE = ACROSS[:2]  # whose values are whole numbers


@dataclass(frozen=True)
class Records:
    """A run's config and files. updates, validations: rows of metrics.jsonl as columns; events: of events.jsonl.

    batch_hashes: the hash of a step's ids, by step; empty without log.batches."""

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
        """The abscissae of steps by the names of ACROSS, between logged updates by interpolation."""
        known, tokens, seconds = self._clock
        return {
            "steps": np.asarray(steps, np.float64),
            "tokens": np.interp(steps, known, tokens),
            "minutes": np.interp(steps, known, seconds / 60),
        }

    @cached_property
    def last_step(self) -> int:
        """The last step that the run has a row or a checkpoint of; 0 without any."""
        rows = [int(table["step"][-1]) for table in (self.updates, self.validations) if table.rows]
        return max([*rows, *self.checkpoints], default=0)

    @cached_property
    def parameters(self) -> int:
        """Number of weights of the newest checkpoint that can be read; 0 without one."""
        for step in reversed(self.checkpoints):
            try:
                tensors = read_manifest(self.folder.step_folder(step)).tensors
            except (OSError, ValueError, UserError):
                continue
            return sum(math.prod(tensor.shape) for name, tensor in tensors.items() if is_weight(name))
        return 0

    @property
    def ending(self) -> JsonObject:
        """summary.json where the run has not gone on since; else empty."""
        step = self.summary.get("step")
        last = max(
            (int(table["step"][-1]) for table in (self.updates, self.validations) if table.rows), default=0
        )
        newest = isinstance(step, int) and step >= last and not self.running
        return self.summary if newest else {}

    @cached_property
    def best_validation(self) -> tuple[float, int] | None:
        """Loss (nats) and step: of summary.json, or of the recorded validations of a run in progress.

        None where even that loss is above the loss of guessing.
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
        """Whether train.patience has ended the run."""
        return self.ending.get("out_of_patience") is True

    @cached_property
    def _clock(self) -> tuple[Float64, Float64, Float64]:
        """Steps, with the tokens and seconds of the run up to each; from step 0 on."""
        columns = [self.updates.get(name, np.zeros(0)) for name in ("step", "tokens", "seconds")]
        rows = min(map(len, columns))
        steps, tokens, seconds = (
            np.concatenate([[0.0], np.asarray(column[:rows], np.float64)]) for column in columns
        )
        return steps, np.nan_to_num(tokens), np.nan_to_num(seconds)


def read_records(folder: RunFolder, config: Config) -> Records:
    """The records of a run, also of one that trains; no lock is taken.

    Raises UserError for a file that cannot be read, FormatError for a damaged one.
    """
    validations: list[Row] = []  # few; the updates may be a million, so their rows are not kept
    hashes: dict[int, str] = {}
    updates = Metrics.of_rows(_without(validations, _noting(hashes, rows_of(folder))))
    summary = folder.summary_file
    return Records(
        folder,
        config,
        updates,
        Metrics.of_rows(validations),
        _events(folder),
        facts_of(folder),
        read_object(summary) if summary.exists() else {},
        Checkpoints(folder).steps(),
        is_running(folder),
        hashes,
    )


def _without(validations: list[Row], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of updates; those of validations are added to the list."""
    for row in rows:
        if "val_loss" in row:
            validations.append(row)
        else:
            yield row


def _noting(hashes: dict[int, str], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows; the hashes of their batches are added to the dict."""
    for row in rows:
        if isinstance(value := row.get("batch_hash"), str):
            hashes[row["step"]] = value
        yield row


def _events(folder: RunFolder) -> list[JsonObject]:
    """The lines of events.jsonl that are events; a torn or damaged line is left out, as it decides nothing."""
    if not folder.events_file.is_file():
        return []
    found = []
    for line in read_bytes(folder.events_file, links=False).splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return found


_QUIET = 600.0  # seconds without a row after which a run on another host counts as ended


def is_running(folder: RunFolder) -> bool:
    """Whether the holder that the lock file names is a process of this host, or another host has written lately."""
    if is_alive(folder.path / LEASE):
        return True
    try:
        holder = json.loads(read_bytes(folder.path / LOCK, links=False))
        process, host = int(holder["pid"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # nobody: the file is empty between runs
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
