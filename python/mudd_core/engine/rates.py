"""Rates of an update: the schedule (computed by the core, libm differs between machines) and the factors by role."""

from __future__ import annotations

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, ModelConfig, MupConfig
from mudd_core.config.optim import DECAYS
from mudd_core.engine.optimizer_groups import ParameterGroup, by_name


def learning_rate(config: Config, t: int) -> float:
    """Learning rate of update t, counted from 0."""
    optim = config.optim
    if optim.after_schedule == "zero" and t >= config.schedule_steps:
        return 0.0
    rate: float = _core.learning_rate(
        optim.schedule,
        t,
        peak=optim.lr,
        steps=config.schedule_steps,
        warmup_steps=optim.warmup_steps,
        final_ratio=optim.final_lr_ratio,
        decay_steps=optim.decay_steps,
        warmup=optim.warmup,
    )
    return rate


def rate_scale(model: ModelConfig, rule: str, role: str, fan_in: int) -> float:
    """Return the factor of a parameter's rate under the rule (docs/maths/mup.md, 2.1; Yang et al. 2022, table 3).

    mup: matrices and head 1 / (d_model // d_base). abs_mup: 1 / d_model, and 1 / (ff_multiple d_model) for the matrix
    behind the activation. Embeddings, gains and biases keep the rate, and under sp all do.
    """
    if rule == "sp" or role not in ("matrix", "head") or not isinstance(model, MupConfig):
        return 1.0
    if rule == "mup":
        return 1.0 / float(model.d_model // model.d_base)
    if fan_in == model.d_model:
        return 1.0 / float(model.d_model)
    return 1.0 / float(model.ff_multiple * model.d_model)


def assign_scales(store: _core.ParamStore, config: Config, groups: list[ParameterGroup]) -> None:
    """Assign every parameter its factors by role and group: decay and its mode, rate and eps (contracts 11, 12)."""
    optim = config.optim
    if optim.decay not in DECAYS:
        raise UserError(f"[config] optim.decay: expected one of {', '.join(DECAYS)}, got '{optim.decay}'")
    group_of = by_name(groups)
    decaying = {role.name for role in _core.roles() if role.kind in DECAYS[optim.decay]}
    for name in store.names():
        about = store.describe(name)
        rate = rate_scale(config.model, optim.rule, about["role"], about["fan_in"])
        store.scale(
            name,
            lr=rate * group_of[name].lr_factor,
            eps=rate if optim.eps_scaling else 1.0,
            decay=1.0 if about["role"] in decaying else 0.0,
            independent=optim.decay_mode == "independent",
        )
