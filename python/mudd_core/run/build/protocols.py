"""Evaluation protocols: the batches of a validation, and the mean of their losses (docs/running/options.md)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_config
from mudd_core.config.pipelines import PROTOCOLS
from mudd_core.config.schema import protocol_of, validation_batch
from mudd_core.run.build.sourced_batches import SourcedBatches

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Rows
    from mudd_core.data.tokenizers.tokenizer import Tokenizer

Sums = tuple[float, int]  # of a batch: (nats, counted targets)


def token_mean(sums: Sequence[Sums]) -> float:
    """Return all nats divided by all targets, added in the order of batches; NaN without targets."""
    nats, targets = 0.0, 0
    for batch_nats, batch_targets in sums:
        nats += batch_nats
        targets += batch_targets
    return nats / targets if targets else math.nan


def mean_of(config: Config) -> Callable[[Sequence[Sums]], float]:
    """Return the function that computes the mean of the config's protocol."""
    return partial(mean_loss, protocol_of(config), slots=validation_batch(config) * config.train.seq_len)


def mean_loss(protocol: str, sums: Sequence[Sums], *, slots: int) -> float:
    """Return nats per target of a validation, from the sums of its batches; NaN without targets. slots: B x T of a
    batch.

    Protocol rows: the ratio of the means over batches of loss and weight. features: the mean over batches of their
    losses divided by all positions. Every other protocol: all nats divided by all targets.
    """
    if not sums:
        return math.nan
    kind = PROTOCOLS[protocol].mean
    if kind == "slots":
        return sum(one[0] / slots for one in sums) / len(sums)
    if kind == "weights":
        loss, weight = (sum(one[i] / slots for one in sums) / len(sums) for i in (0, 1))
        return loss / weight if weight else math.nan
    return token_mean(sums)


def whole_split(config: Config) -> Config:
    """Return the config for the command `validate`, where the protocol rows uses the whole split."""
    if not PROTOCOLS[protocol_of(config)].validates_all:
        return config
    return dataclasses.replace(config, eval=dataclasses.replace(config.eval, max_batches=0))


def by_source(config: Config, rows: Rows) -> list[tuple[Config, Rows]]:
    """Return config and held-out sequences of each source of a mixture; for other data, one pair."""
    from mudd_core.data.pipelines.mixture.rows import MixedValidation

    if not isinstance(rows, MixedValidation):
        return [(config, rows)]
    return [(source_config(config, name), one) for name, one in zip(rows.names, rows.of, strict=True)]


def batches_of(
    config: Config, rows: Rows, tokenizer: Tokenizer | None, records: int = 0
) -> Iterable[Mapping[str, Array]]:
    """Return batches (arrays by name) of held-out sequences, up to eval.documents and eval.max_batches.

    A mixture has the batches of each source, one source after the other. records: the number of records in the files,
    for a message.
    """
    from mudd_core.data.pipelines.mixture.rows import MixedValidation

    if isinstance(rows, MixedValidation):
        parts = by_source(config, rows)
        return SourcedBatches(rows, [batches_of(one, of, tokenizer) for one, of in parts])
    protocol, size, limit = protocol_of(config), validation_batch(config), config.eval.documents
    if not rows.rows:
        if records:
            raise UserError(f"[eval.batch_size] {fewer_than_a_batch(config, records)}")
        raise UserError(
            "[data.eval_path] expected validation files, got none; set data.eval_path=FILES, or set "
            "data.eval_match=TEXT (eval_split=TEXT in MaxText's commands) to use the files of "
            "data.path with TEXT in their path"
        )
    batches = (rows.arrays(index * size, size) for index in range(batch_count(config, rows.rows)))
    if limit and _row_is_document(protocol):
        return _first_rows(batches, limit)
    if limit and PROTOCOLS[protocol].counts == "ends" and tokenizer is not None:
        return _first_documents(batches, limit, tokenizer.eos_id)
    return batches


def fewer_than_a_batch(config: Config, records: int) -> str:
    """Return the message that no group of validation files has a whole batch. records: the records in all files."""
    return (
        f"expected a whole batch of {validation_batch(config)} records in a group of validation "
        f"files, got {records:,} records in all; lower eval.batch_size (eval_per_device_batch_size "
        "in MaxText's commands), or set eval.protocol=pile, which also validates incomplete batches"
    )


def batch_count(config: Config, rows: int) -> int:
    """Return the maximum number of batches of a validation on `rows` held-out sequences: at least one."""
    protocol, limit = protocol_of(config), config.eval.documents
    if limit and _row_is_document(protocol):
        rows = min(rows, limit)
    count = _batches(protocol, rows, validation_batch(config))
    return min(count, config.eval.max_batches or count)


def batch_counts(config: Config, rows: Rows) -> list[int]:
    """Return the maximum number of batches of a validation for each source of a mixture; for other data, one number."""
    return [batch_count(one, of.rows) for one, of in by_source(config, rows)]


def validated_slots(config: Config, rows: int, documents: int) -> int:
    """Return the positions (sequences times T) that a validation computes.

    For joined text, eval.documents is converted by the mean length of a document. documents: 0 if unknown.
    """
    rows = _rows_within_limit(config, rows, documents)
    return batch_count(config, rows) * validation_batch(config) * config.train.seq_len


def validated_tokens(config: Config, rows: int, documents: int) -> int:
    """Return the tokens of a validation: validated_slots without the padding of an incomplete batch."""
    rows = _rows_within_limit(config, rows, documents)
    return min(rows, batch_count(config, rows) * validation_batch(config)) * config.train.seq_len


def _rows_within_limit(config: Config, rows: int, documents: int) -> int:
    limit = config.eval.documents
    if limit and PROTOCOLS[protocol_of(config)].counts == "ends" and documents:
        return min(rows, math.ceil(rows * limit / documents))
    return rows


def _row_is_document(protocol: str) -> bool:
    return PROTOCOLS[protocol].counts == "rows"


def _batches(protocol: str, rows: int, size: int) -> int:
    """Return the number of batches of a validation, at least one."""
    whole = -(-rows // size)
    last = PROTOCOLS[protocol].last
    if last == "never full":  # the batches k with k B < N - B, as in TokenFormer's program
        whole = -(-(rows - size) // size)
    elif last == "dropped":
        whole = rows // size
    return max(1, whole)


def _first_rows(batches: Iterator[Mapping[str, Array]], rows: int) -> Iterator[Mapping[str, Array]]:
    """Yield the batches; the targets after the first `rows` sequences are ignored."""
    for batch in batches:
        yield _ignoring(batch, np.arange(len(batch["targets"]))[:, None] >= rows)
        rows -= len(batch["targets"])


def _first_documents(
    batches: Iterator[Mapping[str, Array]], documents: int, eos_id: int
) -> Iterator[Mapping[str, Array]]:
    """Yield the batches of the first `documents` documents; targets after these documents are ignored."""
    for batch in batches:
        targets = batch["targets"]
        ends = np.cumsum(targets.reshape(-1) == eos_id).reshape(targets.shape)
        before = ends - (targets == eos_id)  # the number of documents that ended before this target
        yield _ignoring(batch, before >= documents)
        documents -= int(ends[-1, -1])
        if documents <= 0:
            return


def _ignoring(batch: Mapping[str, Array], ignored: Array) -> Mapping[str, Array]:
    targets = np.where(ignored, np.int32(-1), batch["targets"])
    return {**batch, "targets": np.ascontiguousarray(targets, np.int32)}
