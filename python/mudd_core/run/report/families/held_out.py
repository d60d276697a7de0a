"""A few held-out sequences and the model of a run's newest checkpoint, for sections that run a forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.config.pipelines import PIPELINES
from mudd_core.data import pipelines
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.rows import validation_batches
from mudd_core.run.build.saved_model import model_of_run
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_facts
from mudd_core.run.store.run_folder import RunFolder

MOST_BYTES = 4 << 30  # bytes of the weights; reading more would take too long for a page
MOST_SEQUENCES = 8
MOST_FLOPS = 5e11  # FLOPs of the forward pass: about two seconds on a few cores


@dataclass(frozen=True)
class HeldOut:
    """A model and held-out sequences. step: of its checkpoint. batch: validation arrays [B, T], at most MOST_FLOPS."""

    model: Model
    step: int
    batch: Mapping[str, Array]

    @property
    def text(self) -> str:
        """A sentence for a note: the checkpoint and the sequences that were measured."""
        rows, length = self.batch["inputs"].shape
        return f"Checkpoint of step {self.step:,}, {rows} held-out sequences of {length} tokens."


def held_out(folder: RunFolder, config: Config) -> HeldOut:
    """Return the model of a run's newest checkpoint and some of its held-out sequences.

    This builds no token cache and locks nothing. Raise UserError if there is no checkpoint, if the weights are too
    large, or if the cache is gone, and FormatError if a file is damaged.
    """
    if not Checkpoints(folder).steps():
        raise UserError("the run has no checkpoint yet")
    if config.data.cache == "stream" or config.data.pipeline not in PIPELINES:
        raise UserError("its text is streamed or read by your own code, which a page does not run")
    fingerprint = data_fingerprint(read_facts(folder))
    if not fingerprint:
        raise UserError("the run has not read its text yet")
    text = pipelines.prepare(config, fingerprint=fingerprint, before_build=_refuse_build)
    shape = resolved_model(config, text.vocab_size)
    size = 4 * Model(shape, booked_only=True).n_parameters
    if size > MOST_BYTES:
        raise UserError(
            f"the weights have {size / 2**30:.1f} GiB, and a page reads at most {MOST_BYTES >> 30} GiB"
        )
    model, step = model_of_run(config, folder, vocab_size=text.vocab_size)
    batch = next(iter(validation_batches(config, text)), None)
    if batch is None:
        raise UserError("the data have no sequences for validation")
    forward = flops_per_token(shape, shape.vocab_size, config.train.seq_len) / 3
    tokens = max(1, int(MOST_FLOPS / forward))
    length = min(batch["inputs"].shape[1], tokens)
    rows = max(1, min(MOST_SEQUENCES, tokens // length))
    return HeldOut(model, step, {name: array[:rows, :length] for name, array in batch.items()})


def _refuse_build() -> None:
    raise UserError("the token cache of the run is missing; the next start of the run builds it")
