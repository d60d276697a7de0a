"""The rows of a run's data: those that training reads, and the batches of validation and of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.run.protocols import batches_of

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared, Rows, RowShape


def row_shape(config: Config) -> RowShape:
    """What of a config decides the rows of its data."""
    from mudd_core.data.pipelines import RowShape

    train = config.train
    return RowShape(train.seq_len, train.batch_size, config.order_seed)


def training_rows(config: Config, text: Prepared) -> Rows:
    """The rows that training reads."""
    from mudd_core.data.pipelines.ids_data import FirstBatch

    rows, train = text.rows("train", row_shape(config)), config.train
    whole = rows.batches(config.data.epochs) if config.data.epochs else None
    if whole is not None and whole < train.steps:
        raise UserError(
            f"[data.epochs] {config.data.epochs} passes have {whole:,} batches of {train.batch_size} rows, and "
            f"train.steps={train.steps} needs more; set train.steps={whole} or data.epochs=0"
        )
    if config.data.repeat_batch:
        if rows.core is None:
            return FirstBatch(rows, config.train.batch_size)
        rows.core.repeat(config.train.batch_size)
    return rows


def validation_batches(config: Config, text: Prepared) -> Iterator[Mapping[str, Any]]:
    """Batches (arrays by name) of the held-out rows, by the protocol of the pipeline."""
    return batches_of(config, text.rows("valid", row_shape(config)), text.tokenizer)


def test_batches(config: Config, text: Prepared) -> Iterator[Mapping[str, Any]]:
    """Batches of the test split; UserError for data without one."""
    from mudd_core.data.pipelines import test_rows

    return batches_of(config, test_rows(config, text, row_shape(config)), text.tokenizer)
