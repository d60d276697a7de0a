"""Who runs against whom: configs brought to equal parameters or equal FLOPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model_shape import resolved_model

# The field that sets a family's size without touching depth, width of the stream and heads.
KNOBS = {"tokenformer": "slot_num"}
UNIT = 8  # the knob moves in steps of this


@dataclass(frozen=True)
class Candidate:
    """A name for legends and folders, and the config of its runs (seed and work directory aside).

    grown_from: configs of earlier runs, each the start of the next (TokenFormers with ever more slots).
    """

    name: str
    config: Config
    grown_from: tuple[Config, ...] = ()

    @property
    def stages(self) -> tuple[Config, ...]:
        """The configs of all its runs, one after the other."""
        return (*self.grown_from, self.config)


@dataclass(frozen=True)
class Comparison:
    """What is compared. measure: val_bits_per_byte, or loss (of training). The first candidate is the reference."""

    title: str
    measure: str
    candidates: tuple[Candidate, ...]
    note: str = ""


def parameters(config: Config, vocab_size: int) -> int:
    """Weights of the config's model; no memory is taken for them."""
    from mudd_core.engine.model import Model

    return Model(resolved_model(config, vocab_size), booked_only=True).n_parameters


def total_cost(candidate: Candidate, vocab_size: int) -> float:
    """FLOPs of all its runs."""
    return sum(cost(config, vocab_size) for config in candidate.stages)


def cost(config: Config, vocab_size: int) -> float:
    """FLOPs of one whole training."""
    shape = resolved_model(config, vocab_size)
    tokens = config.train.steps * config.train.batch_size * config.train.seq_len
    return flops_per_token(shape, shape.vocab_size, config.train.seq_len) * tokens


def equal_parameters(candidates: Sequence[Candidate], vocab_size: int) -> tuple[Candidate, ...]:
    """All with about the first one's parameters, by their feed-forward width or slots; steps stay."""
    wanted = parameters(candidates[0].config, vocab_size)
    return tuple(
        dataclasses.replace(one, config=_with_parameters(one.config, wanted, vocab_size))
        for one in candidates
    )


def _with_parameters(config: Config, wanted: int, vocab_size: int) -> Config:
    knob = KNOBS.get(config.model.family, "d_ff")

    def turned(value: int) -> Config:
        changed: Config
        if config.model.family == "mup":  # d_ff is the floor of ff_multiple * d_model there
            changed = replace_path(config, "model.ff_multiple", (value + 0.25) / config.model.d_model)
        else:
            changed = replace_path(config, f"model.{knob}", value)
        return changed

    low = int(getattr(config.model, knob))
    at_low, at_high = (parameters(turned(value), vocab_size) for value in (low, 2 * low))
    slope = (at_high - at_low) / low  # weights are linear in the knob, but for rounding
    guess = UNIT * max(1, round((low + (wanted - at_low) / slope) / UNIT))
    near = [value for value in (guess - UNIT, guess, guess + UNIT) if value > 0]
    best = min((turned(value) for value in near), key=lambda c: abs(parameters(c, vocab_size) - wanted))
    if abs(parameters(best, vocab_size) / wanted - 1) > 0.05:
        raise UserError(
            f"[bakeoff] {config.model.family}: expected about {wanted:,} parameters, the nearest it can have is "
            f"{parameters(best, vocab_size):,} (model.{knob}={getattr(best.model, knob)}); "
            "take other widths or --equal=flops"
        )
    return best


def equal_flops(candidates: Sequence[Candidate], vocab_size: int) -> tuple[Candidate, ...]:
    """All with the first one's FLOPs over the whole training, by their number of steps; models stay."""
    wanted = total_cost(candidates[0], vocab_size)
    evened = []
    for one in candidates:
        steps = max(1, round(one.config.train.steps * wanted / cost(one.config, vocab_size)))
        evened.append(dataclasses.replace(one, config=with_steps(one.config, steps)))
    return tuple(evened)


def with_steps(config: Config, steps: int, checks: int = 8) -> Config:
    """The config with so many steps, validated (and saved, to resume) about `checks` times."""
    every = max(1, steps // checks)
    train = dataclasses.replace(
        config.train,
        steps=steps,
        eval_every=every,
        save_every=every,
        log_every=max(1, every // 10),
        keep_last=1,
    )
    train = dataclasses.replace(train, eval_every=train.log_every * max(1, every // train.log_every))
    return dataclasses.replace(config, train=train)
