"""The data of a run: read or built once for all ranks, and passed to the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.types import JsonObject
from mudd_core.config import Config
from mudd_core.run.build import start_warnings
from mudd_core.run.build.components import Components
from mudd_core.run.build.protocols import by_source, validated_slots, validated_tokens
from mudd_core.run.build.reference import with_reference
from mudd_core.run.build.rows import no_validation, row_shape, taught_batches, teacher_file, training_rows
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.facts import DATA_FACT, vocabulary_facts, vocabulary_in_use
from mudd_core.run.store.identity import seal_fact

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared


def shared_data(
    prepare: Callable[..., Prepared],
    config: Config,
    fingerprint: str | None,
    ranks: Ranks,
    before_build: Callable[[], None] | None = None,
) -> Prepared:
    """Return the data of a run, which are equal on all ranks.

    One rank builds the cache. The other ranks use its files if they can read them.
    """
    shown = None if ranks.first else (lambda *_: None)  # callback for the progress of a build
    text: Prepared = ranks.in_turn(
        lambda: prepare(config, fingerprint=fingerprint, progress=shown, before_build=before_build)
    )
    ranks.agree({"text and tokenizer": text.fingerprint, "token cache": text.seal})
    return text


def add_text(
    components: Components, config: Config, fingerprint: str | None = None, ranks: Ranks | None = None
) -> Components:
    """Return the components with the config's text. Raise UserError if the model's vocabulary is too small."""
    from mudd_core.data import pipelines

    text = shared_data(pipelines.prepare, config, fingerprint, ranks or Ranks())
    text, _ = with_reference(config, text, None, ranks or Ranks())
    have = components.model.config.vocab_size
    if text.vocab_size > have:
        raise UserError(
            f"[train] model: expected a vocabulary of at least {text.vocab_size}, the size of the "
            f"tokenizer, got {have}; pass a batch to each step, or set data.tokenizer to the "
            "tokenizer of the model"
        )
    components.engine.batcher = training_rows(config, text)
    return with_text(components, config, text)


def with_text(components: Components, config: Config, text: Prepared) -> Components:
    """Return a copy of the components that trains and validates on the prepared text."""
    from mudd_core.data.rows import Outlined, Shown

    held_rows = text.rows("valid", row_shape(config))
    held = held_rows.rows
    records = text.documents[1]
    missing = "" if held else no_validation(config, records)
    warned = bool(missing and (config.data.eval_match or records))
    parts = by_source(config, held_rows) if held else []
    vocabulary = vocabulary_facts(components.model.config.vocab_size, text.vocab_size)
    return dataclasses.replace(
        components,
        tokenizer=text.tokenizer,
        documents=text.documents,
        train_tokens=text.train_tokens,
        described=tuple(text.describe()),
        outline=text.outline() if isinstance(text, Outlined) else "",
        facts={
            **components.facts,
            DATA_FACT: text.fingerprint,
            **seal_fact(text),
            **_teacher_fact(config),
            **vocabulary,
        },
        validated_slots=sum(validated_slots(one, of.rows, records) for one, of in parts),
        validated_tokens=sum(validated_tokens(one, of.rows, records) for one, of in parts),
        bytes_per_target=text.valid_bytes_per_target,
        validation_batches=lambda: taught_batches(config, text),
        reopened_rows=lambda: training_rows(config, text),
        validates=bool(held),
        vocabulary=vocabulary_in_use(vocabulary),
        warnings=(
            *components.warnings,
            *start_warnings.of_files(text),
            *start_warnings.of_text(config, text),
            *([missing] if warned else []),
        ),
        notes=(
            *components.notes,
            *(text.shown() if isinstance(text, Shown) else ()),
            *([missing] if missing and not warned else []),
        ),
    )


def _teacher_fact(config: Config) -> JsonObject:
    """Return the hash of the teacher file, which a resumed run compares; nothing without a teacher."""
    file = teacher_file(config)
    return {} if file is None else {"teacher": file.seal}


def with_steps(config: Config, fingerprint: str | None, ranks: Ranks) -> Config:
    """Return the config with train.steps for train.epochs passes over the training sequences, whole batches only."""
    from mudd_core.data import pipelines
    from mudd_core.data.pipelines.core_rows import PackedRows

    train = config.train
    if not train.epochs:
        return config
    text = shared_data(pipelines.prepare, config, fingerprint, ranks)
    found = text.rows("train", row_shape(config))
    rows = found.rows
    if rows < train.batch_size:
        raise UserError(
            f"[train.epochs] expected at least a batch of {train.batch_size} sequences, got {rows}; "
            "lower train.batch_size"
        )
    steps = train.epochs * (rows // train.batch_size)
    if config.data.mix:
        steps = found.batches(train.epochs) or 0
    elif isinstance(found, PackedRows) and config.data.epochs == train.epochs:
        steps = found.batches(train.epochs)  # includes the last batch of each worker
    return dataclasses.replace(config, train=dataclasses.replace(train, steps=steps))
