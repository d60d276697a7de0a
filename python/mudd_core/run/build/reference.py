"""The reference's log-probabilities of pairs of answers, computed once and kept in the folder of the run.

The reference is the model before the first update: the weights of start.load_parameters_path, with the adapters of
lora.start_from if there are any, as in trl.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import local
from mudd_core.base.show.waiting import waiting
from mudd_core.base.types import Float64, JsonObject
from mudd_core.config import Config, LossConfig, ModelConfig
from mudd_core.engine.frozen import set_weight
from mudd_core.engine.model_shape import resolved_model
from mudd_core.engine.pairs import needs_reference
from mudd_core.run.build.base import load_base, weights_sha256
from mudd_core.run.build.grow import start_weights
from mudd_core.run.build.start_source import Source, base_path, read_source
from mudd_core.run.build.stored_types import stored_in
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import write_json
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared
    from mudd_core.data.pipelines.chat_data import ChatData
    from mudd_core.engine.model import Model

_TOKENS_AT_ONCE = 2048
_VALUES = "log_probs"
_BASE, _ADAPTERS = "base_sha256", "adapters_sha256"


def with_reference(
    config: Config, text: Prepared, folder: RunFolder | None, ranks: Ranks
) -> tuple[Prepared, str]:
    """Return the data with the reference's log-probabilities, and a note; unchanged for a loss without a reference.

    folder: the folder of the run, which keeps them; None computes them at each start. They are computed again, and the
    note says so, if the kept file belongs to another base or to other data. Raise UserError if the base is missing.
    """
    from mudd_core.data.pipelines.chat_data import ChatData

    if not needs_reference(config.loss) or not isinstance(text, ChatData):
        return text, ""
    values, note = ranks.in_turn(lambda: _kept_or_computed(config, text, folder, shown=ranks.first))
    return replace(text, reference=values), note


def _kept_or_computed(
    config: Config, text: ChatData, folder: RunFolder | None, *, shown: bool
) -> tuple[Float64, str]:
    facts = _facts(config, text)
    file = None if folder is None else folder.reference_file
    kept = None if file is None else _read(file)
    path = base_path(config, folder)
    if kept is not None and not path.exists() and _equal(kept, {**facts, _BASE: kept.get(_BASE)}):
        return _values(kept, text), ""  # full fine-tuning may lose its base
    source = read_source(path)
    facts[_BASE] = weights_sha256(source.tensors)
    if (begins := _initial_adapters(config)) is not None:
        was = None if kept is None else kept.get(_ADAPTERS)
        facts[_ADAPTERS] = (
            weights_sha256(read_source(begins, warns=False).tensors) if begins.exists() else was
        )
    if kept is not None and _equal(kept, facts):
        return _values(kept, text), ""
    shape = resolved_model(config, text.vocab_size)
    with waiting("computing the log-probabilities of the reference", shown=shown):
        found = _computed(config, text, shape, source, folder)
    if file is not None and folder is not None and not folder.read_only:
        write_json(file, {**facts, _VALUES: found.tolist()})
    why = _why_again(kept, facts, folder)
    return found, f"computed {file} again, because it {why}" if why else ""


def _why_again(kept: JsonObject | None, facts: JsonObject, folder: RunFolder | None) -> str:
    """Return why the kept values of a run cannot be used; empty for a run that has none yet."""
    if kept is None:
        return "was missing" if folder is not None and Checkpoints(folder).steps() else ""
    changed = [name for name in facts if kept.get(name) != facts[name]]
    return f"has another {', '.join(changed)}" if kept and changed else "is damaged"


def _facts(config: Config, text: ChatData) -> JsonObject:
    """Return the facts on which the values depend, without the base."""
    train = config.train
    return {
        "data": text.fingerprint,
        "seq_len": train.seq_len,
        "too_long": config.data.too_long,
        "precision": train.precision,
    }


def _read(file: Path) -> JsonObject | None:
    """Return the kept values and their facts; None without a readable file."""
    try:
        return object_in(file) if file.is_file() else None
    except (FormatError, UserError, ValueError):
        return None


def _equal(kept: JsonObject, facts: JsonObject) -> bool:
    values = kept.get(_VALUES)
    numbers = isinstance(values, list) and all(isinstance(one, float | int) for one in values)
    return numbers and all(kept.get(name) == value for name, value in facts.items())


def _values(kept: JsonObject, text: ChatData) -> Float64:
    found = np.array(kept[_VALUES], np.float64)
    if found.shape != text.kept.lengths.shape or not np.isfinite(found).all():
        raise UserError(
            f"[start] the log-probabilities of the reference are damaged: expected {text.kept.lengths.size:,} finite "
            f"numbers, got {found.size:,}; delete reference.json, and the next start computes them"
        )
    return found


def _initial_adapters(config: Config) -> Path | None:
    """Return the file of the adapters with which the run starts; None if they are new and change nothing."""
    begins = config.lora.start_from if config.tune.method == "lora" else ""
    return local(begins, "[config] lora.start_from") if begins else None


def _computed(
    config: Config, text: ChatData, shape: ModelConfig, source: Source, folder: RunFolder | None
) -> Float64:
    """Return the log-probability of each kept answer in nats, zero for the pairs that are left out."""
    from mudd_core.engine.model import Model

    stored = stored_in(config).of(shape, config) if config.tune.method == "lora" else None
    precision = config.train.precision
    if _initial_adapters(config) is not None:
        model = Model(shape, precision=precision, stored=stored, lora=config.lora)
        load_base(config, model, folder).settle(model, fresh=True)
    else:
        model = Model(shape, initialize=False, precision=precision, stored=stored)
        for name, value in start_weights(model, source):
            set_weight(model.store, name, value)
    model.store.repack()
    model.pairs = LossConfig(kind="orpo", nll="answer")  # the same log-probabilities, without a reference
    found = np.zeros(text.kept.lengths.size, np.float64)
    for places in (text.train.places, text.valid.places):
        found[places] = _log_probs(model, text, places.tolist(), config.train.seq_len)
    if not all(map(math.isfinite, found.tolist())):
        raise UserError(
            f"[start] {source.path}: the base gives an answer a log-probability that is not finite; it cannot be the "
            "reference of loss.kind=dpo"
        )
    return found


def _log_probs(model: Model, text: ChatData, places: list[int], seq_len: int) -> Float64:
    """Return the log-probability of the answers at these places, in pieces of equal shape."""
    from mudd_core.data.pipelines.pair_rows import answers_at

    size = 2 * max(1, _TOKENS_AT_ONCE // (2 * seq_len))
    planned = model.plan("evaluate", size, seq_len, optional=("positions", "segments"))
    found: list[float] = []
    for first in range(0, len(places), size):
        some = places[first : first + size]
        planned.fill(answers_at(text.kept, some, size, seq_len, text.tokenizer.bos_id))
        planned.executor.run()
        found += planned.executor.get(planned.outputs[3])[: len(some)].tolist()
    return np.array(found, np.float64)
