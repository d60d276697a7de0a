"""The data and the model of a run that another command reads, from one of its checkpoints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import JsonObject
from mudd_core.config import Config
from mudd_core.data import pipelines
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.lora import lora_of
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.base import load_base, require_base
from mudd_core.run.build.start_source import check_start
from mudd_core.run.build.stored_types import StoredTypes, stored_in
from mudd_core.run.records.data_facts import SEAL_FACT, data_fingerprint
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import of_facts
from mudd_core.run.store.identity import seal_fact
from mudd_core.run.store.json_files import read_facts, run_id_of
from mudd_core.run.store.registrations import require_registered
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_state import take_weights

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared


def load_run(config: Config, folder: RunFolder, step: int | None = None) -> tuple[Prepared, Model, int]:
    """(data, model, step) of the newest checkpoint of a run, or of one step."""
    facts = read_facts(folder)
    if (source := of_facts(facts)) is not None:
        require_registered(source.registers, source.file)
    _core.set_num_threads(config.train.threads)
    text = pipelines.prepare(config, fingerprint=data_fingerprint(facts) or None)
    if facts.get(SEAL_FACT, text.seal) != text.seal and seal_fact(text):
        raise UserError(
            f"[data] the token cache {text.fingerprint} is not the one that {folder} was trained with: saved seal "
            f"{facts[SEAL_FACT]!r}, now {text.seal!r}; bring the old one back"
        )
    model, found = model_of_run(config, folder, step, vocab_size=text.vocab_size)
    train = config.train
    runs, _ = cut_batch(train.batch_size, train.shard_count(), train.micro_batch_size)
    model.evaluated_at_once = train.batch_size // runs
    return text, model, found


def model_of_run(
    config: Config,
    folder: RunFolder,
    step: int | None = None,
    *,
    vocab_size: int = 0,
    precision: str | None = None,
) -> tuple[Model, int]:
    """(model, step) of the newest checkpoint of a run, or of one step; no text is read and no lock is taken.

    vocab_size: of the run's tokenizer; 0: as run.json has it. precision: that of the run by default. UserError where
    there is no checkpoint yet; a newer one that does not verify is a warning on standard error.
    """
    facts = read_facts(folder)
    found = Checkpoints(folder).weights(run_id_of(folder, facts), step)
    if found is None:
        raise UserError(f"[workdir] {folder} has no checkpoint yet; train first")
    for passed in found.passed_over:
        print(f"warning: {passed}", file=sys.stderr)
    shape = resolved_model(config, vocab_size or _saved_vocabulary(config, facts, folder))
    adapted = config.tune.method == "lora"
    if adapted:
        check_start(config, folder)
    types = stored_in(config, Checkpoints(folder)) if adapted else StoredTypes(found.types, True)
    model = Model(
        shape,
        initialize=False,
        seed=config.train.seed,
        precision=precision or config.train.precision,
        stored=types.of(shape, config),
        lora=lora_of(config),
    )
    if adapted:
        base = load_base(config, model, folder)
        require_base(base, found.state, found.path)
        take_weights(model, found)
        base.settle(model, fresh=False)
    else:
        take_weights(model, found)
    return model, found.step


def _saved_vocabulary(config: Config, facts: JsonObject, folder: RunFolder) -> int:
    saved = facts.get("vocab_size")
    size = saved if isinstance(saved, int) and saved else config.model.vocab_size
    if size < 1:
        raise FormatError(str(folder.run_file), 0, "member 'vocab_size': expected 1 or more, got none")
    return size
