"""What a clm command's batch means here: one device's sequences, and what the balance loss averages over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mudd_core.config import Config, mixture_of
from mudd_core.config.arguments import argument
from mudd_core.config.fields import replace_path
from mudd_core.config.origins import Origin
from mudd_core.programs.mesh_sizes import ranks_note, sequences
from mudd_core.programs.moe.keys import DEVICE_BATCH, GLOBAL_BATCH, LENGTH
from mudd_core.programs.program import DEVICES
from mudd_core.programs.table import Applied, Setting

_SCOPE = "model.aux_scope"
# The benchmark's run: its length, its experiment, the sequences of an update and the updates between validations.
BENCHMARK = (32768, "+experiment=gbs256_tpu", 256, 6)


def batch_notes(settings: Mapping[str, Setting], config: Config, devices: int, ranks: int) -> list[str]:
    """A line on the batch of one device where its size is typed, with the way to the batch of several."""
    setting = settings.get(DEVICE_BATCH)
    whole = settings.get(GLOBAL_BATCH)
    if setting is None or not setting.word or devices > 1 or (whole is not None and whole.word):
        return []
    text = f"{setting.word}: one device here, so an update has {sequences(config.train.batch_size)}"
    length, experiment, size, every = BENCHMARK
    if config.train.seq_len == length and settings[LENGTH].word:
        text += (
            f"; {experiment} is the benchmark's run, with {size} sequences an update and a validation every {every} "
            f"updates, and {DEVICES}={size} gives this command that batch"
        )
    else:
        text += f"; {DEVICES}=N gives the batch of N devices"
    return ["; ".join(filter(None, (text, ranks_note(devices, ranks))))]


def with_scope(applied: Applied) -> tuple[Applied, list[str]]:
    """Let the balance loss average over the whole micro-batch, as there, where it is one run; else a line on it."""
    config = applied.config
    mixture, typed = mixture_of(config.model), applied.origins.get(_SCOPE)
    if (
        mixture is None
        or not mixture.aux_coef
        or (typed is not None and argument(typed.word).option.endswith(_SCOPE))
    ):
        return applied, []
    if not config.train.micro_batch_size:
        changed: Config = replace_path(config, _SCOPE, "batch")
        origin = Origin("shard", typed.file if typed else "", typed.word if typed else "")
        return replace(applied, config=changed, origins={**applied.origins, _SCOPE: origin}), []
    return applied, [
        f"the balance loss averages over each of {config.train.shard_count()} shards ({_SCOPE}=shard): an update of "
        f"{sequences(config.train.batch_size)} takes several runs of the graph; there it averages over a micro-batch"
    ]
