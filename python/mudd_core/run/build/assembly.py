"""Puts data, model and engine together for the training loop."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.own_optimizers import slow_note
from mudd_core.data.rows import Masked
from mudd_core.engine import memory
from mudd_core.engine.flops import peak_flops
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build import start_warnings
from mudd_core.run.build.base import load_base
from mudd_core.run.build.components import Components
from mudd_core.run.build.disk_space import checkpoint_bytes, refuse_full_disk, shortage
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.rows import data_end_note, ended_by_data, training_rows
from mudd_core.run.build.run_data import shared_data, with_text
from mudd_core.run.build.shared_memory import fit_node
from mudd_core.run.build.stored_types import require_types, stored_in, types_note
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.peak import TRIES, Peak
from mudd_core.run.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


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
            *start_warnings.of_warm_up(config),
        ),
        notes=tuple(
            filter(
                None,
                [
                    slow_note(config.optim.name),
                    trained_note(model, config.tune),
                    types_note(model, config, checkpoints),
                    ends,
                ],
            )
        ),
        steps=steps,
        base=base,
    )
    return with_text(components, config, text) if text else components


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
