"""Build the data, the model and the engine for the training loop."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.show.waiting import waiting
from mudd_core.config import Config
from mudd_core.config.own_optimizers import slow_note
from mudd_core.data.rows import Masked
from mudd_core.engine import memory
from mudd_core.engine.flops import peak_flops
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build import start_warnings
from mudd_core.run.build.base import Base, load_base
from mudd_core.run.build.components import Components
from mudd_core.run.build.disk_space import checkpoint_bytes, refuse_full_disk, shortage
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.reference import with_reference
from mudd_core.run.build.rows import data_end_note, ended_by_data, training_rows
from mudd_core.run.build.run_data import shared_data, with_text
from mudd_core.run.build.shared_memory import fit_node
from mudd_core.run.build.stored_types import require_types, stored_in, types_note
from mudd_core.run.ranks.core_kinds import slow_cores_text
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.machine import TRIES, Peak
from mudd_core.run.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model


def assemble(
    config: Config,
    model: Model | None = None,
    fingerprint: str | None = None,
    ranks: Ranks | None = None,
    checkpoints: Checkpoints | None = None,
) -> Components:
    """Return the engine and, unless a model is given, the data. Raise UserError if memory or disk space is short.

    model: the model to train further; add_text adds its data on request, because the caller may pass all batches.
    fingerprint: of the token cache with which a resumed run was started. ranks: the ranks of the run, with one model on
    each. checkpoints: the checkpoints of the run.
    """
    from mudd_core import _core

    ranks = ranks or Ranks()
    _core.set_num_threads(ranks.threads(config.train.threads))
    if model is not None:
        parts = _with_model(config, model, ranks, checkpoints)
    else:
        parts = _with_data(config, fingerprint, ranks, checkpoints)
    components = _components(parts, ranks, checkpoints)
    return with_text(components, parts.config, parts.text) if parts.text else components


@dataclass(frozen=True)
class _Parts:
    """Model, engine and data of a run, before they become Components.

    config: the config, with the steps of the data. warnings: lines about memory and disk space. ends: a note if the
    data end before train.steps; `steps` is then the number of steps in the data. base: the base of adapters.
    """

    config: Config
    model: Model
    engine: Engine
    text: Prepared | None
    warnings: tuple[str, ...]
    steps: int = 0
    ends: str = ""
    base: Base | None = None


def _with_model(config: Config, model: Model, ranks: Ranks, checkpoints: Checkpoints | None) -> _Parts:
    """Return the parts of a run that trains a passed model: its engine, and no data."""
    _refuse_adapters(model, config)
    require_types(model, config)
    model, engine, report = plan_model(model.config, config, model)
    memory.require(sum(report.values()) - report["weights"] - report["packed"], "training")
    disk = ranks.together(lambda: _disk_warning(config, ranks, checkpoints, checkpoint_bytes(report)))
    return _Parts(config, model, engine, None, (disk,))


def _with_data(
    config: Config, fingerprint: str | None, ranks: Ranks, checkpoints: Checkpoints | None
) -> _Parts:
    """Return the model of a config with initial weights, its engine and its data."""
    from mudd_core.data import pipelines

    place, stored = _place(ranks), stored_in(config, checkpoints)

    def check() -> None:  # size of the requested vocabulary; a trained vocabulary is at most that large
        shape = resolved_model(config, expected_vocabulary(config, copied=True))
        plan = MemoryPlan(shape, config, place, stored)
        _disk_warning(config, ranks, checkpoints, plan.checkpoint_bytes(plan.require()))

    text = shared_data(pipelines.prepare, config, fingerprint, ranks, check)
    folder = checkpoints.run if checkpoints is not None else None
    text, compared = with_reference(config, text, folder, ranks)
    shape = resolved_model(config, text.vocab_size)
    plan = MemoryPlan(shape, config, place, stored)
    report = ranks.together(plan.require)
    memory_warning = fit_node(plan, ranks)
    batcher = training_rows(config, text)
    ended, steps, ends = ended_by_data(config, batcher), 0, ""
    if ended is not config:
        steps, ends = ended.train.steps, data_end_note(config, ended.train.steps)
    disk = ranks.together(lambda: _disk_warning(ended, ranks, checkpoints, plan.checkpoint_bytes(report)))
    model, engine, _ = plan_model(shape, ended, batcher=batcher, comm=ranks.comm, stored=stored)
    engine.limit_experts(memory.available_bytes()[0] // place.on_a_node - sum(report.values()))
    with waiting(f"setting the initial values of {model.n_parameters:,} parameters", shown=ranks.first):
        model.store.initialize(ended.train.seed)
        ranks.barrier()  # wait, because ranks of a node may share the weights
    base = None
    if ended.tune.method == "lora":
        base = load_base(ended, model, folder)
        ranks.barrier()
    warnings = (memory_warning, disk, compared)
    return _Parts(ended, model, engine, text, warnings, steps, ends, base)


def _disk_warning(config: Config, ranks: Ranks, checkpoints: Checkpoints | None, each: int) -> str:
    """Return a warning if disk space is short for checkpoints of `each` bytes, on the rank that saves."""
    if not ranks.first:
        return ""
    refuse_full_disk(config, checkpoints, each)
    return shortage(config, checkpoints, each)


def _components(parts: _Parts, ranks: Ranks, checkpoints: Checkpoints | None) -> Components:
    """Return the components of the loop, without the text."""
    from mudd_core import _core
    from mudd_core.engine.frozen import trained_note

    config, text = parts.config, parts.text
    precision, base = config.train.precision, parts.base
    warnings = [
        *parts.warnings,
        *start_warnings.of_level(_core.detected_isa(), platform.machine()),
        *start_warnings.of_threads(_core.num_threads()),
        *start_warnings.of_saving(config),
        *start_warnings.of_warm_up(config),
        *start_warnings.of_mixture(config),
        *start_warnings.of_wire(config, ranks.nodes),
    ]
    notes = [
        slow_cores_text(),
        slow_note(config.optim),
        trained_note(parts.model.store, config.tune),
        types_note(parts.model, config, checkpoints),
        parts.ends,
    ]
    return Components(
        model=parts.model,
        tokenizer=None,
        engine=parts.engine,
        facts=base.facts if base is not None else {},
        validated_slots=0,
        validated_tokens=0,
        bytes_per_target=0.0,
        flops_per_token=parts.engine.flops_per_token(text.counted_share if isinstance(text, Masked) else 1.0),
        peak=Peak(lambda: ranks.world * peak_flops(precision, TRIES)),
        validation_batches=lambda: (),
        warnings=tuple(filter(None, warnings)),
        notes=tuple(filter(None, notes)),
        steps=parts.steps,
        base=base,
    )


def _refuse_adapters(model: Model, config: Config) -> None:
    """Raise UserError for a given model with adapters: its checkpoints would lack the base."""
    if model.lora is not None or config.tune.method == "lora":
        raise UserError(
            "[Trainer] model: expected none for adapters, because the run reads the base model "
            "itself; save the base with model.save(FOLDER), and set tune.method=lora and "
            "start.load_parameters_path=FOLDER"
        )


def _place(ranks: Ranks) -> Place:
    if ranks.comm is None or ranks.world == 1:
        return ALONE
    return Place(ranks.world, ranks.comm.node_size)
