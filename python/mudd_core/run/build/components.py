"""The components of the training loop: model, data and engine of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.types import Array, JsonObject
from mudd_core.config import Config
from mudd_core.run.build.base import Base
from mudd_core.run.records.engine import LoopEngine
from mudd_core.run.records.machine import Peak

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


@dataclass(frozen=True)
class Components:
    """The components of the training loop.

    facts: inputs that determine the weights in addition to the config; compared on resume. validated_slots: positions
    that a validation computes. validated_tokens: the same without padding of an incomplete batch. bytes_per_target:
    bytes of validation text divided by its targets; 0 if unknown. peak: measured peak of the instructions that the run
    uses.
    reopened_rows: function that reopens the files of the training sequences. warnings: lines for the user, printed
    once.
    notes: lines for the user at a start or resume. documents: numbers for training and validation; zeros if unknown.
    steps: steps in the data if they end before train.steps, else 0. train_tokens: tokens of the training text; 0 if
    unknown.
    described: description of the data, line by line. outline: number, size and split of the documents, or empty.
    validates: True if there are sequences for validation. base: the base of adapters. vocabulary: number of possible
    tokens; 0 if unknown.
    """

    model: Model
    tokenizer: Tokenizer | None
    engine: LoopEngine
    facts: JsonObject
    validated_slots: int
    validated_tokens: int
    bytes_per_target: float
    flops_per_token: float
    peak: Peak
    validation_batches: Callable[[], Iterable[Mapping[str, Array]]]
    reopened_rows: Callable[[], Rows | None] = lambda: None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    documents: tuple[int, int] = (0, 0)
    steps: int = 0
    train_tokens: int = 0
    described: tuple[str, ...] = ()
    outline: str = ""
    validates: bool = True
    base: Base | None = None
    vocabulary: int = 0

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the tokenizer files for the run's folder; none for raw bytes, or for data without text."""
        from mudd_core.data.tokenizers.files import OF_FILES, tokenizer_files

        return tokenizer_files(self.tokenizer) if isinstance(self.tokenizer, OF_FILES) else {}

    def ideal_step(self, config: Config) -> float:
        """Return the seconds of an update at the measured peak."""
        train = config.train
        return self.flops_per_token * train.batch_size * train.seq_len / self.peak.flops


def with_model_of(model: Model, config: Config) -> Config:
    """Return the config with the model's shape and precision, and its loss.normalize if it is not a mean over counted
    targets.
    """
    train = dataclasses.replace(config.train, precision=model.precision)
    config = dataclasses.replace(config, model=model.config, train=train)
    if model.normalize != "all_slots":
        return config
    return dataclasses.replace(config, loss=dataclasses.replace(config.loss, normalize="all_slots"))
