"""The interface of a data pipeline, and of the sequences of ids that it returns.

Each sequence is a pure function of its index. The module of a pipeline defines one Pipeline object, PIPELINE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

import numpy as np

from mudd_core.base.types import Array, Int32
from mudd_core.config import Config
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from mudd_core import _core

# Arrays that a pipeline may return in addition to inputs and targets.
PARTS = ("positions", "segments", "key_mask")
# The teacher's tokens, int32 [n_samples, T, K], and their log-probabilities, float32, of a run with loss.teacher.
TEACHER_PARTS = ("teacher_ids", "teacher_log_probs")


# The reference's log-probabilities of pairs of answers, float32 [n_samples, 3], whose columns are added.
REFERENCE, REFERENCE_COLUMNS = "reference", 3
# The answer's positions and the weight of the negative log-likelihood, float32 [n_samples, 5] (ops.preference_loss).
NLL, NLL_COLUMNS = "nll", 5


class CursorMembers(TypedDict, total=False):
    """The position of a stream in its data. config/pipelines.py lists the keys that each pipeline uses."""

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
    sources: dict[str, Cursor]  # of a mixture


class Cursor(CursorMembers):
    """The position of a batch, as a checkpoint stores it."""

    version: int
    pipeline: str
    batch: int


@dataclass(frozen=True)
class RowShape:
    """The settings that determine a run's sequences: tokens per sequence, sequences per batch, seed of the order."""

    seq_len: int
    batch_size: int
    seed: int


class Rows(Protocol):
    """Sequences of a split by global sample index, from 0. Only validation ends, after `rows` sequences."""

    @property
    def core(self) -> _core.BatchSource | None:
        """The C++ source (cpp/mudd/data/batch_source.h), or None if `arrays` computes the sequences in Python."""

    @property
    def rows(self) -> int:
        """The number of sequences in a training epoch, or in the validation split.

        A training epoch has 0 if only reading to the end shows the number.
        """

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the arrays in addition to inputs and targets, in the order of PARTS."""

    def batches(self, epochs: int) -> int | None:
        """Return the number of whole batches in `epochs` training epochs; None if only reading to the end shows it."""

    def arrays(self, first_sample: int, n_samples: int) -> Mapping[str, Array]:
        """Return new arrays int32 [n_samples, T] by name; pairs of answers may have REFERENCE too.

        A target of -1 has no loss. Samples after the end of validation have only such targets.
        """


@runtime_checkable
class Cursored(Protocol):
    """Sequences whose position is saved in a checkpoint, so that a resumed run finds it without reading."""

    def cursor(self, batch: int) -> Cursor | None:
        """Return the position of this batch or of an earlier one, as JSON values."""

    def go_on(self, cursor: object) -> None:
        """Continue from a checkpoint's position; an unusable position is ignored."""


@runtime_checkable
class Repeated(Protocol):
    """Sequences of several passes over the data, in an order that is computed for all passes together."""

    @property
    def passes(self) -> int:
        """The number of passes in `rows` sequences."""


@runtime_checkable
class Tested(Protocol):
    """Data with a test split in addition to the validation split."""

    def test_rows(self, shape: RowShape) -> Rows:
        """Return the test sequences in the form of the split `valid`; raise UserError if there are too few."""


@runtime_checkable
class Shown(Protocol):
    """Data that print lines when a run starts."""

    def shown(self) -> list[str]:
        """Return lines for the user when a run starts or resumes."""


@runtime_checkable
class Outlined(Protocol):
    """Data of documents that the user may not have counted."""

    def outline(self) -> str:
        """Return their number, size, end and the held-out part in a few words; empty if there is nothing to say."""


@runtime_checkable
class Masked(Protocol):
    """Data with targets that have no loss."""

    @property
    def counted_share(self) -> float:
        """The fraction of the training targets that have a loss."""


class Prepared(Protocol):
    """Data that are ready to be read.

    fingerprint: identifies the content; a resumed run compares it. seal: a hash of everything that the ids of a run
    depend on; None if unknown. tokenizer: None if the data are ids without text.
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
        """The average bytes of validation text per target; 0 if unknown, as for ids without text."""

    @property
    def train_tokens(self) -> int:
        """The number of ids in the training split; 0 if unknown or unlimited."""

    @property
    def documents(self) -> tuple[int, int]:
        """The numbers of documents or records in (training, validation); zeros if unknown."""

    def rows(self, split: Split, shape: RowShape) -> Rows:
        """Return the sequences of a split; raise UserError if it has too few."""

    def describe(self) -> list[str]:
        """Return lines for the user that describe the data."""


def filled(
    core: _core.BatchSource, parts: tuple[str, ...], seq_len: int, first_sample: int, n_samples: int
) -> dict[str, Int32]:
    """Return new arrays by name, filled by a C++ source."""
    names = ("inputs", "targets", *parts)
    arrays: dict[str, Int32] = {name: np.empty((n_samples, seq_len), np.int32) for name in names}
    core.fill(first_sample, arrays["inputs"], arrays["targets"], {name: arrays[name] for name in parts})
    return arrays


@dataclass(frozen=True)
class Preparation:
    """The parameters of a start for the preparation of its data.

    fingerprint: the fingerprint of the data that the run was started with. progress: called with (phase, done, total);
    None prints to the terminal. before_build: called before text is read for a new cache; it may raise.
    """

    fingerprint: str | None = None
    progress: Progress | None = None
    before_build: Callable[[], None] | None = None


class PrepareOne(Protocol):
    """The function that prepares the data of a config without a mixture."""

    def __call__(self, config: Config, how: Preparation, /) -> Prepared: ...


def _no_note(config: Config, shape: RowShape) -> str:
    return ""


@dataclass(frozen=True)
class Pipeline:
    """One data pipeline. Its settings are in the PipelineSpec of the same name.

    parts: names of the arrays in addition to inputs and targets, in the order of PARTS. prepare: returns the data of a
    config. plan_note: returns a line about the files that a start writes to the cache folder; empty if there are none.
    """

    name: str
    parts: tuple[str, ...]
    prepare: Callable[[Config, Preparation], Prepared]
    plan_note: Callable[[Config, RowShape], str] = _no_note
