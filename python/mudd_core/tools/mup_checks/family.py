"""The widths of one model: the fields that must be equal, and one short training of a width."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import Config, MupConfig, check_config

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

FIXED = ("d_base", "d_head", "ff_multiple")  # the relative rule depends on these fields


def at_widths(config: Config, widths: Sequence[int]) -> list[Config]:
    """Return the config at every width; raise UserError for another family."""
    return [dataclasses.replace(config, model=dataclasses.replace(config.model, d_model=w)) for w in widths]


def checked_family(configs: Sequence[Config], what: str) -> list[Config]:
    """Return the configs in order of width; raise UserError with the reason if rates cannot transfer between them."""
    for config in configs:
        if not isinstance(config.model, MupConfig):
            raise UserError(f"[{what}] config: expected the family mup, got {config.model.family}")
        check_config(config)
    members = sorted(configs, key=lambda config: config.model.d_model)
    widths = [config.model.d_model for config in members]
    if len(set(widths)) != len(widths):
        raise UserError(f"[{what}] widths: expected different widths, got {', '.join(map(str, widths))}")
    for name in FIXED:
        values = {getattr(config.model, name): config.model.d_model for config in members}
        if len(values) > 1:
            shown = ", ".join(f"{value:g} at width {width}" for value, width in values.items())
            raise UserError(
                f"[{what}] {name} differs over the widths ({shown}); rates transfer only where d_base, d_head and "
                "ff_multiple are fixed, because the rule counts one ratio d_model / d_base for every matrix"
            )
    return members


def chain(ids: int, steps: int, samples: int, length: int, seed: int = 0) -> Array:
    """Return tokens [steps, samples, length + 1] of a random chain over `ids` tokens; equal for equal arguments."""
    rng = np.random.default_rng([seed, ids])
    upto = rng.dirichlet(np.full(ids, 0.1), ids).cumsum(axis=1)
    tokens = np.zeros((steps, samples, length + 1), np.int32)
    tokens[:, :, 0] = rng.integers(0, ids, (steps, samples))
    for t in range(length):
        draw = rng.random((steps, samples, 1))
        tokens[:, :, t + 1] = np.minimum((draw > upto[tokens[:, :, t]]).sum(-1), ids - 1)
    return tokens


def train(
    config: Config,
    seed: int,
    tokens: Array,
    *,
    unscaled: str = "",
    look: Callable[[int, Model], None] = lambda step, model: None,
) -> list[float]:
    """Train on tokens [steps, B, T + 1], one update for each step, and return the losses.

    Vocabulary and sequence length follow from the tokens. unscaled: matrices with this suffix keep the unscaled rate,
    to test that the check fails. look: called with the number of updates and the model, before the first update and
    after each.
    """
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model
    from mudd_core.engine.optimizer_groups import learning_rate

    steps, samples, length = tokens.shape[0], tokens.shape[1], tokens.shape[2] - 1
    shape = dataclasses.replace(config.model, vocab_size=int(tokens.max()) + 1, max_seq_len=length)
    config = dataclasses.replace(
        config,
        model=shape,
        train=dataclasses.replace(
            config.train, steps=steps, batch_size=samples, seq_len=length, logical_shards=8, micro_batch=0
        ),
    )
    model = Model(shape, seed=seed)
    engine = Engine(config, model)
    names = [name for name in model.store.names() if unscaled and name.endswith(unscaled)]
    if unscaled and not names:
        raise UserError(f"[mup check] unscaled: no parameter's name ends in '{unscaled}'")
    for name in names:
        model.store.scale(name, decay=model.store.describe(name)["decay_scale"])
    look(0, model)
    losses = []
    for step in range(steps):
        batch = {"inputs": tokens[step, :, :-1], "targets": tokens[step, :, 1:]}
        report = engine.train_step(step, learning_rate(config, step), batch)
        losses.append(float(report.loss))
        look(step + 1, model)
    return losses
