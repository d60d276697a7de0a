"""The data and the model of a run, for commands that read the run from one of its checkpoints."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.show.waiting import waiting
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Config
from mudd_core.config.schema import lora_of
from mudd_core.data import pipelines
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import resolved_model
from mudd_core.engine.state import average_name, weight_parts
from mudd_core.run.build.base import load_base, require_base
from mudd_core.run.build.planned_model import spread_of
from mudd_core.run.build.reference import with_reference
from mudd_core.run.build.run_data import shared_data
from mudd_core.run.build.shared_memory import fit_weights
from mudd_core.run.build.start_source import check_start
from mudd_core.run.build.stored_types import StoredTypes, stored_in
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.facts import SEAL_FACT, data_fingerprint
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import of_facts, require_registered
from mudd_core.run.store.identity import seal_fact
from mudd_core.run.store.json_files import read_facts, run_id_of
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared


def load_run(
    config: Config,
    folder: RunFolder,
    step: int | None = None,
    ranks: Ranks | None = None,
    *,
    average: bool = False,
) -> tuple[Prepared, Model, int]:
    """Return (data, model, step) of a run's newest checkpoint, or of one step. ranks, average: as in model_of_run."""
    ranks = ranks or Ranks()
    facts = _ready(config, folder, ranks)
    text = shared_data(pipelines.prepare, config, data_fingerprint(facts) or None, ranks)
    if facts.get(SEAL_FACT, text.seal) != text.seal and seal_fact(text):
        raise UserError(
            f"[data] the token cache {text.fingerprint} is not the token cache that {folder} was "
            f"trained with: saved seal {facts[SEAL_FACT]!r}, now {text.seal!r}; restore the old cache"
        )
    text, _ = with_reference(config, text, folder, ranks)
    model, found = model_of_run(
        config, folder, step, vocab_size=text.vocab_size, ranks=ranks, average=average
    )
    model.pairs = config.loss if config.loss.of_pairs else None
    train = config.train
    runs, _ = cut_batch(train.batch_size, train.shard_count(), train.micro_batch_size)
    model.evaluated_at_once = train.batch_size // runs
    return text, model, found


def model_for_prompts(
    config: Config,
    folder: RunFolder,
    step: int | None = None,
    ranks: Ranks | None = None,
    *,
    average: bool = False,
) -> tuple[Model, int]:
    """Return (model, step) as load_run does, without the data: neither the text nor the token cache is read."""
    ranks = ranks or Ranks()
    _ready(config, folder, ranks)
    return model_of_run(config, folder, step, ranks=ranks, average=average)


def _ready(config: Config, folder: RunFolder, ranks: Ranks) -> JsonObject:
    """Set the threads of a command that reads a run; return run.json.

    Raise UserError if the run needs objects that its config file registers.
    """
    facts = read_facts(folder)
    if (source := of_facts(facts)) is not None:
        ranks.together(lambda: require_registered(source.registers, source.file))
    _core.set_num_threads(ranks.threads(config.train.threads))
    return facts


def model_of_run(
    config: Config,
    folder: RunFolder,
    step: int | None = None,
    *,
    vocab_size: int = 0,
    precision: str | None = None,
    ranks: Ranks | None = None,
    average: bool = False,
) -> tuple[Model, int]:
    """Return (model, step) of a run's newest checkpoint, or of one step, without reading text or taking a lock.

    vocab_size: the size for the run's tokenizer; 0: from run.json. precision: by default the run's precision. ranks:
    config.mesh shards the model across them; each reads its part, and all make this call. average: use the averaged
    weights of train.average. Raise UserError if there is no checkpoint yet, or no average in it. A newer checkpoint
    that fails verification causes a warning on stderr.
    """
    ranks = ranks or Ranks()
    facts, checkpoints = read_facts(folder), Checkpoints(folder)
    types = ranks.from_first(lambda: _types(config, checkpoints, step))
    shape = resolved_model(config, vocab_size or _saved_vocabulary(config, facts, folder))
    adapted = config.tune.method == "lora"
    if adapted:
        ranks.together(lambda: check_start(config, folder))
    found_in = stored_in(config, checkpoints) if adapted else StoredTypes(types, True)
    stored = found_in.of(shape, config)
    if (warning := fit_weights(shape, stored, ranks)) and ranks.first:
        print(f"warning: {warning}", file=sys.stderr)
    spread = spread_of(shape, config, ranks)
    model = Model(
        shape,
        initialize=False,
        seed=config.train.seed,
        precision=precision or config.train.precision,
        stored=stored,
        comm=spread.comm,
        experts=spread.experts,
        cut=spread.cut,
        lora=lora_of(config),
        lent=found_in.lent(shape, config) if ranks.world == 1 else None,
    )
    with waiting(f"reading the weights of {folder}", shown=ranks.first):
        base = load_base(config, model, folder) if adapted else None
        ranks.barrier()
        averaged = ranks.from_first(lambda: _averaged(checkpoints, step)) if average else []
        found = _read_weights(model, checkpoints, run_id_of(folder, facts), step, ranks, averaged)
        if base is not None:
            require_base(base, found.state, found.path)
            base.settle(model, fresh=False)
            ranks.barrier()
    if ranks.first:
        for passed in found.passed_over:
            print(f"warning: {passed}", file=sys.stderr)
    return model, found.step


def _types(config: Config, checkpoints: Checkpoints, step: int | None) -> dict[str, str]:
    """Return the types of the run's tensors if they are needed; raise UserError if there is no checkpoint."""
    if not checkpoints.steps():
        raise UserError(f"[workdir] {checkpoints.run} has no checkpoint yet; train first")
    if not config.trained:
        return {}
    try:
        return checkpoints.types_of(step) if step is not None else checkpoints.types() or {}
    except (FormatError, OSError):  # the error is raised when the weights are read
        return {}


def _averaged(checkpoints: Checkpoints, step: int | None) -> list[str]:
    """Return the names of the weights that have an average in a checkpoint; raise UserError if none has one."""
    names = checkpoints.types_of(step) if step is not None else checkpoints.types() or {}
    if found := [name for name in names if average_name(name) in names]:
        return found
    raise UserError(
        f"[arguments] --average: {checkpoints.run} has no averaged weights in this checkpoint; train it with "
        "train.average=ema:0.999, or average its checkpoints: "
        f"{shlex.join([*typed_program(), 'average', str(checkpoints.run), '--last=3'])}"
    )


def _read_weights(
    model: Model,
    checkpoints: Checkpoints,
    run_id: str,
    step: int | None,
    ranks: Ranks,
    averaged: Sequence[str],
) -> Checkpoint:
    """Read this rank's part of the weights of the newest step, or of one step. averaged: names to read averaged."""
    comm, names = model.comm, frozenset(averaged)
    parts = [
        replace(part, name=average_name(part.name)) if part.name in names else part
        for part in weight_parts(model.store)
    ]

    def read() -> Checkpoint | None:
        if step is None:
            return checkpoints.load_newest(run_id, parts, comm=comm)
        return checkpoints.load_step(step, run_id, parts, comm)

    found = ranks.together(read)
    assert found is not None
    model.store.repack()
    return found


def _saved_vocabulary(config: Config, facts: JsonObject, folder: RunFolder) -> int:
    saved = facts.get("vocab_size")
    size = saved if isinstance(saved, int) and saved else config.model.vocab_size
    if size < 1:
        raise FormatError(str(folder.run_file), 0, "key 'vocab_size': expected 1 or more, got none")
    return size
