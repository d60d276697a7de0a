"""Puts data, model and engine together for the training loop."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, JsonObject
from mudd_core.config import Config
from mudd_core.config.own_optimizers import slow_note
from mudd_core.data.rows import Masked
from mudd_core.engine import memory
from mudd_core.engine.flops import peak_flops
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build import start_warnings
from mudd_core.run.build.base import Base, load_base
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.disk_space import checkpoint_bytes, refuse_full_disk, shortage
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.protocols import validated_slots
from mudd_core.run.build.rows import (
    data_end_note,
    ended_by_data,
    no_validation,
    row_shape,
    training_rows,
    validation_batches,
)
from mudd_core.run.build.shared_memory import fit_node
from mudd_core.run.build.stored_types import require_types, stored_in, types_note
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import LoopEngine
from mudd_core.run.records.data_facts import DATA_FACT
from mudd_core.run.records.peak import TRIES, Peak
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.identity import seal_fact

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared, Rows
    from mudd_core.data.tokenize import Tokenizer
    from mudd_core.engine.model import Model


@dataclass(frozen=True)
class Components:
    """What the loop works on.

    facts: what the weights depend on besides the config; compared on resume. validated_slots: of a validation.
    bytes_per_target: bytes of validation text over its targets; 0 if unknown. peak: of the units that the run uses.
    reopened_rows: those of the training, their files opened anew. warnings: for the user, once. notes: lines for the
    user when a run begins or goes on. documents: of training and validation, zeros if unknown. steps: those that the
    data have, where they end before train.steps; else 0. train_tokens: of the training text, 0 if unknown. described:
    what the data are, line by line. validates: whether the data have rows for validation. base: of adapters.
    """

    model: Model
    tokenizer: Tokenizer | None
    engine: LoopEngine
    facts: JsonObject
    validated_slots: int
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
    validates: bool = True
    base: Base | None = None

    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizer for the run's folder; none for raw bytes and for data that are ids."""
        from mudd_core.data.tokenizer_files import OF_FILES, tokenizer_files

        return tokenizer_files(self.tokenizer) if isinstance(self.tokenizer, OF_FILES) else {}

    def ideal_step(self, config: Config) -> float:
        """Seconds of an update at the measured peak."""
        train = config.train
        return self.flops_per_token * train.batch_size * train.seq_len / self.peak.flops


def with_model_of(model: Model, config: Config) -> Config:
    """The config with the model's shape and precision, and its loss where that is not a mean over counted targets."""
    train = dataclasses.replace(config.train, precision=model.precision)
    config = dataclasses.replace(config, model=model.config, train=train)
    if model.normalize != "all_slots":
        return config
    return dataclasses.replace(config, loss=dataclasses.replace(config.loss, normalize="all_slots"))


def assemble(
    config: Config,
    model: Model | None = None,
    fingerprint: str | None = None,
    ranks: Ranks | None = None,
    checkpoints: Checkpoints | None = None,
) -> Components:
    """Real engine and, unless a model is given, real data. UserError if memory or disk space is short.

    model: one to train further, whose data add_text brings when it is asked for: it may live on given batches alone.
    fingerprint: of the token cache that a resumed run was started with. ranks: of the run, one model on each.
    checkpoints: of the run.
    """
    from mudd_core import _core
    from mudd_core.data import pipelines
    from mudd_core.engine.trainable import trained_note

    train, ranks = config.train, ranks or Ranks()
    place, memory_warning = _place(ranks), ""

    def check_disk(each: int) -> str:  # by the rank that saves
        if not ranks.first:
            return ""
        refuse_full_disk(config, checkpoints, each)
        return shortage(config, checkpoints, each)

    steps, ends, base = 0, "", None
    _core.set_num_threads(ranks.threads(train.threads))
    if model is not None:
        shape, text = model.config, None
        _refuse_adapters(model, config)
        require_types(model, config)
        model, engine, report = plan_model(shape, config, model)
        memory.require(sum(report.values()) - report["weights"] - report["packed"], "training")
        disk_warning = ranks.together(lambda: check_disk(checkpoint_bytes(report)))
    else:
        stored = stored_in(config, checkpoints)

        def check() -> None:  # of the vocabulary that was asked for: a trained one is at most that large
            shape = resolved_model(config, expected_vocabulary(config, copied=True))
            plan = MemoryPlan(shape, config, place, stored)
            check_disk(plan.checkpoint_bytes(plan.require()))

        text = shared_data(pipelines.prepare, config, fingerprint, ranks, check)
        shape = resolved_model(config, text.vocab_size)
        plan = MemoryPlan(shape, config, place, stored)
        report = ranks.together(plan.require)
        memory_warning = fit_node(plan, ranks)
        batcher = training_rows(config, text)
        whole, config = config, ended_by_data(config, batcher)
        if config is not whole:
            steps, ends = config.train.steps, data_end_note(whole, config.train.steps)
        disk_warning = ranks.together(lambda: check_disk(plan.checkpoint_bytes(report)))
        model, engine, _ = plan_model(shape, config, batcher=batcher, comm=ranks.comm, stored=stored)
        engine.limit_experts(memory.available_bytes()[0] // place.on_a_node - sum(report.values()))
        model.store.initialize(train.seed)
        ranks.barrier()  # ranks of a node may share the weights
        if config.tune.method == "lora":
            base = load_base(config, model, checkpoints.run if checkpoints is not None else None)
            ranks.barrier()
    components = Components(
        model=model,
        tokenizer=None,
        engine=engine,
        facts=base.facts if base is not None else {},
        validated_slots=0,
        bytes_per_target=0.0,
        flops_per_token=engine.flops_per_token(text.counted_share if isinstance(text, Masked) else 1.0),
        peak=Peak(lambda: ranks.world * peak_flops(train.precision, TRIES)),
        validation_batches=lambda: (),
        warnings=(
            *filter(None, [memory_warning, disk_warning]),
            *start_warnings.of_level(_core.detected_isa(), platform.machine()),
            *start_warnings.of_threads(_core.num_threads()),
            *start_warnings.of_saving(config),
        ),
        notes=tuple(
            filter(
                None,
                [
                    slow_note(config.optim.name),
                    trained_note(model),
                    types_note(model, config, checkpoints),
                    ends,
                ],
            )
        ),
        steps=steps,
        base=base,
    )
    return _with_text(components, config, text) if text else components


def _refuse_adapters(model: Model, config: Config) -> None:
    """UserError for a given model with adapters: checkpoints hold those alone, so a run reads its base from a file."""
    if model.lora is not None or config.tune.method == "lora":
        raise UserError(
            "[Trainer] model: expected none for adapters, whose base the run reads itself; save it with "
            "model.save(FOLDER), and set tune.method=lora and start.load_parameters_path=FOLDER"
        )


def _place(ranks: Ranks) -> Place:
    if ranks.comm is None or ranks.world == 1:
        return ALONE
    return Place(ranks.world, ranks.comm.node_size)


def shared_data(
    prepare: Callable[..., Prepared],
    config: Config,
    fingerprint: str | None,
    ranks: Ranks,
    before_build: Callable[[], None] | None = None,
) -> Prepared:
    """The data of a run: a cache is built by one rank, found by those that see its files, and the same for all."""
    shown = None if ranks.first else (lambda *_: None)  # of the progress of a build
    text: Prepared = ranks.in_turn(
        lambda: prepare(config, fingerprint=fingerprint, progress=shown, before_build=before_build)
    )
    ranks.agree({"text and tokenizer": text.fingerprint, "token cache": text.seal})
    return text


def add_text(
    components: Components, config: Config, fingerprint: str | None = None, ranks: Ranks | None = None
) -> Components:
    """The parts with the config's text: batches, validation, tokenizer. UserError if the model has too few tokens."""
    from mudd_core.data import pipelines

    text = shared_data(pipelines.prepare, config, fingerprint, ranks or Ranks())
    have = components.model.config.vocab_size
    if text.vocab_size > have:
        raise UserError(
            f"[train] model: expected a vocabulary of at least the tokenizer's {text.vocab_size}, got {have}; "
            "give each step its batch, or set data.tokenizer to the model's own"
        )
    components.engine.batcher = training_rows(config, text)
    return _with_text(components, config, text)


def _with_text(components: Components, config: Config, text: Prepared) -> Components:
    from mudd_core.data.rows import Shown

    held = text.rows("valid", row_shape(config)).rows
    missing = "" if held else no_validation(config)
    warned = bool(missing and config.data.eval_match)
    return dataclasses.replace(
        components,
        tokenizer=text.tokenizer,
        documents=text.documents,
        train_tokens=text.train_tokens,
        described=tuple(text.describe()),
        facts={
            **components.facts,
            DATA_FACT: text.fingerprint,
            **seal_fact(text),
            "vocab_size": components.model.config.vocab_size,
        },
        validated_slots=validated_slots(config, held, text.documents[1]) if held else 0,
        bytes_per_target=text.valid_bytes_per_target,
        validation_batches=lambda: validation_batches(config, text),
        reopened_rows=lambda: training_rows(config, text),
        validates=bool(held),
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


def with_steps(config: Config, fingerprint: str | None, ranks: Ranks) -> Config:
    """The config with train.steps of train.epochs passes over the training rows, whole batches only."""
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
            f"[train.epochs] expected at least a batch of {train.batch_size} rows, got {rows}; lower train.batch_size"
        )
    steps = train.epochs * (rows // train.batch_size)
    if isinstance(found, PackedRows) and config.data.epochs == train.epochs:
        steps = found.batches(train.epochs)  # with the last batch of each worker
    return dataclasses.replace(config, train=dataclasses.replace(train, steps=steps))
