"""The data and the model of a run that another command reads, from one of its checkpoints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.data import pipelines
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.model import Model
from mudd_core.run.build.components import resolved_model
from mudd_core.run.build.stored_types import StoredTypes
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
    found = Checkpoints(folder).weights(run_id_of(folder, facts), step)
    if found is None:
        raise UserError(f"[workdir] {folder} has no checkpoint yet; train first")
    for passed in found.passed_over:
        print(f"warning: {passed}", file=sys.stderr)
    shape = resolved_model(config, text.vocab_size)
    model = Model(
        shape,
        seed=config.train.seed,
        precision=config.train.precision,
        stored=StoredTypes(found.types, True).of(shape, config),
    )
    train = config.train
    runs, _ = cut_batch(train.batch_size, train.shard_count(), train.micro_batch_size)
    model.evaluated_at_once = train.batch_size // runs
    take_weights(model, found)
    return text, model, found.step
