"""The lines that a run prints at its start in the default log style: model, data, schedule with ETA, and output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.surroundings import environment_text
from mudd_core.base.units import duration
from mudd_core.config import Config, Difference, config_hash
from mudd_core.config.describe import listing
from mudd_core.config.pipelines import spec_of
from mudd_core.run.store.run_folder import OUTPUT, RunFolder

ASSUMED = 0.5  # fraction of the peak, until a step of the run is measured


@dataclass(frozen=True)
class Start:
    """The facts of a run just before its first update, or before its first update after a resume.

    machine: threads, level and ranks. tokens: of the training text, 0 if unknown. validated: tokens of one validation.
    vocabulary: size of the model's vocabulary. has_text: whether the data are read already. has_tokenizer: whether they
    have a tokenizer. seconds: estimated time to the end of the run. measured: whether `seconds` is based on steps of
    this run. described: lines about the data, for the log. outline: number, size and split of its documents, or empty.
    changed: fields that differ from the last start.
    """

    config: Config
    folder: RunFolder | None
    machine: str
    parameters: int
    vocabulary: int
    tokens: int
    validated: int
    has_text: bool
    has_tokenizer: bool
    step: int
    seconds: float
    measured: bool
    described: Sequence[str] = ()
    outline: str = ""
    changed: Sequence[Difference] = ()


def start_lines(start: Start) -> list[str]:
    """Return the lines about model, data, schedule and output."""
    return [
        f"model     {_model(start)}",
        f"data      {_data(start)}",
        f"schedule  {_schedule(start)}",
        f"writes    {_writes(start)}",
        *_repeats(start),
    ]


def detail_lines(start: Start) -> list[str]:
    """Return further lines for the log of the run: the whole config, the machine, the data."""
    config = start.config
    return [
        listing(config),
        f"config {config_hash(config)[:16]}  work directory {start.folder}",
        environment_text(config.train.precision),
        *start.described,
    ]


def _model(start: Start) -> str:
    model = start.config.model
    layers = f"{model.n_layer} layer{'s' * (model.n_layer != 1)} of width {model.d_model}"
    return (
        f"{start.config.name} ({model.family}): {start.parameters:,} parameters, {layers}; "
        f"{start.config.train.precision}, {start.machine}"
    )


def _data(start: Start) -> str:
    data = start.config.data
    spec = spec_of(data.pipeline)
    source = data.dataset or data.path or (f"the mixture {data.mix}" if data.mix else "")
    if not source and not spec.ids_alone:
        source = "the sources of Python's standard library"
    parts = [source or f"data.pipeline={data.pipeline}"]
    if not start.has_text:
        return f"{parts[0]}, read when a step needs it"
    names = {"bpe": "BPE tokens", "bytes": "bytes"}
    kind = names.get(data.tokenizer, f"tokens of {data.tokenizer}") if start.has_tokenizer else "ids"
    parts[0] += f": {start.outline}" if start.outline else ""
    count = f"{start.tokens:,} " if start.tokens else ""
    parts.append(f"{count}{kind} (vocabulary {start.vocabulary:,})")
    parts.append(f"validation on {start.validated:,} tokens" if start.validated else "no validation")
    return ", ".join(parts)


def _schedule(start: Start) -> str:
    train, optim = start.config.train, start.config.optim
    size = f"{train.batch_size:,} x {train.seq_len:,} tokens"
    if start.step:
        changed = ", ".join(f"{change.path}={change.asked}" for change in start.changed)
        text = f"resumes at step {start.step} of {train.steps}, batches of {size}" + (
            f", with {changed}" if changed else ""
        )
    else:
        total = train.steps * train.batch_size * train.seq_len
        text = f"{train.steps:,} steps of {size} ({total:,} in all)"
    if train.patience:
        text += f", fewer after {train.patience} validations without a better loss"
    text += f", {optim.name} {optim.schedule}, lr {optim.lr:g}"
    return f"{text}; {_time(start)}"


def _repeats(start: Start) -> list[str]:
    """Return a note for a table of n-grams that sees its text more than once."""
    train = start.config.train
    passes = train.steps * train.batch_size * train.seq_len / start.tokens if start.tokens else 0.0
    if not start.config.model.ngram_rows or passes <= 1:
        return []
    return [
        f"note: the run reads its text {passes:.1f} times, and a table of n-grams memorizes repeated text; watch the "
        "validation loss, or train for one pass (docs/maths/ngrams.md, 5)"
    ]


def _time(start: Start) -> str:
    """Return the ETA and its basis: measured steps of this run, or an assumed fraction of the peak."""
    if not math.isfinite(start.seconds):
        return "ETA after the first steps"
    basis = "at the speed of its last steps" if start.measured else "at half of this machine's peak"
    return f"ETA about {duration(max(1.0, start.seconds))} {basis}"


def _writes(start: Start) -> str:
    if start.folder is None:
        return "nothing: the run has no work directory"
    train = start.config.train
    place = start.folder.typed or str(start.folder)
    if start.folder.url:
        place += f", mirrored to {start.folder.url}"
    if not train.save:
        saves = "no checkpoints"
    elif train.save_policy == "best":
        saves = "the checkpoints of the best validations"
    else:
        saves = (
            f"a checkpoint every {train.save_every:,} steps"
            if train.save_every
            else "a checkpoint at the end"
        )
    if train.save and train.save_at:
        saves += f", and one after each of the steps {train.save_at}"
    saves += ", the best one kept" if train.save and train.keep_best else ""
    return f"{place}: {saves}; the whole config is in {OUTPUT}"
