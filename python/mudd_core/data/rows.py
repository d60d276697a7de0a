"""The interface of a pipeline: what a start says about its data, and the rows of ids that a pipeline returns.

Each row is a pure function of its number. The module of a pipeline has one object of the class Pipeline, PIPELINE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

import numpy as np

from mudd_core.base.types import Int32
from mudd_core.config import Config
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from mudd_core import _core

PARTS = ("positions", "segments", "key_mask")  # that a pipeline may give beside inputs and targets


class CursorMembers(TypedDict, total=False):
    """The place of a stream in its data; config/pipelines.py says which members a pipeline has."""

    turn: int
    places: list[int]
    before_end: list[int]
    epoch: int
    file: int
    number: int
    held: int
    taken: int
    draws: int
    read: int
    ended: int
    slots: list[int]
    origin: list[int]


class Cursor(CursorMembers):
    """The place of a batch, as a checkpoint keeps it."""

    version: int
    pipeline: str
    batch: int


@dataclass(frozen=True)
class RowShape:
    """What decides the rows of a run besides its data: ids of a row, rows of a batch, seed of the order."""

    seq_len: int
    batch_size: int
    seed: int


class Rows(Protocol):
    """Rows of a split by global sample number, from 0. Training goes on for ever; validation ends with `rows`."""

    @property
    def core(self) -> _core.BatchSource | None:
        """The source of the core (cpp/mudd/data/batch_source.h); None if `arrays` makes the rows in Python."""

    @property
    def rows(self) -> int:
        """Rows of an epoch, 0 where only its end tells; for validation in all."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what the rows have beside inputs and targets, in the order of PARTS."""

    def batches(self, epochs: int) -> int | None:
        """Whole batches in so many epochs of training; None where only their end tells."""

    def arrays(self, first_sample: int, n_samples: int) -> Mapping[str, Int32]:
        """New arrays [n_samples, T] by name. A target of -1 does not count; validation ends with rows of these."""


@runtime_checkable
class Cursored(Protocol):
    """Rows that keep their place in a checkpoint, so that a run that goes on finds it at once."""

    def cursor(self, batch: int) -> Cursor | None:
        """Members of JSON: the place of this batch, or of one before it."""

    def go_on(self, cursor: object) -> None:
        """Take a place out of a checkpoint; what cannot be used is passed over."""


@runtime_checkable
class Tested(Protocol):
    """Data that have rows for a test beside those for validation."""

    def test_rows(self, shape: RowShape) -> Rows:
        """Those rows, as of the split `valid`; UserError if there are none or too few."""


@runtime_checkable
class Shown(Protocol):
    """Data of which a start shows something."""

    def shown(self) -> list[str]:
        """Lines for the user when a run begins or goes on."""


@runtime_checkable
class Masked(Protocol):
    """Data some of whose targets do not count."""

    @property
    def counted_share(self) -> float:
        """Training targets that count over all of them."""


class Prepared(Protocol):
    """Data that are ready to be read.

    fingerprint: names the content; a resumed run asks for it. seal: of everything that numbers of a run depend on, None
    if unknown. tokenizer: None for data that are ids alone.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def seal(self) -> str | None: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def tokenizer(self) -> Tokenizer | None: ...

    @property
    def valid_bytes_per_target(self) -> float:
        """Bytes of validation text over its targets; 0 where that is unknown, as with ids alone."""

    @property
    def train_tokens(self) -> int:
        """Ids of the training split; 0 where that is unknown or without end."""

    @property
    def documents(self) -> tuple[int, int]:
        """Documents or records of training and of validation; zeros where they are not counted."""

    def rows(self, split: Split, shape: RowShape) -> Rows:
        """The rows of a split; UserError if it has too few."""

    def describe(self) -> list[str]:
        """Lines for the user: what the data are."""


def filled(
    core: _core.BatchSource, parts: tuple[str, ...], seq_len: int, first_sample: int, n_samples: int
) -> dict[str, Int32]:
    """New arrays by name from a source of the core."""
    names = ("inputs", "targets", *parts)
    arrays: dict[str, Int32] = {name: np.empty((n_samples, seq_len), np.int32) for name in names}
    core.fill(first_sample, arrays["inputs"], arrays["targets"], {name: arrays[name] for name in parts})
    return arrays


@dataclass(frozen=True)
class Preparation:
    """What a start says about its data.

    fingerprint: of the data that a run was started with. progress: called with (phase, done, total); None is the
    terminal. before_build: called before text is read for a new cache; it may raise.
    """

    fingerprint: str | None = None
    progress: Progress | None = None
    before_build: Callable[[], None] | None = None


def _no_note(config: Config, shape: RowShape) -> str:
    return ""


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; settings see its PipelineSpec of the same name.

    parts: what its rows have beside inputs and targets, in the order of data.rows.PARTS. prepare: gives the data of a
    config. plan_note: a line of a plan on the files that a start writes to the cache folder; empty if it writes none.
    """

    name: str
    parts: tuple[str, ...]
    prepare: Callable[[Config, Preparation], Prepared]
    plan_note: Callable[[Config, RowShape], str] = _no_note
