"""Groups of parameters by optimizer, and the rates of an update: the schedule, and factors by role.

optim.groups selects parameters by name; all others use optim.name. The core computes the schedule, because libm differs
between machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, ModelConfig, MupConfig, OptimConfig
from mudd_core.config.fields import Scalar
from mudd_core.config.optim import DECAYS, OPTIMIZERS, SPECS, GroupSpec, parse_groups
from mudd_core.config.phases import parse_phases
from mudd_core.engine.name_patterns import choose_names

ROWS = "rows"  # role of the table of n-grams


@dataclass(frozen=True)
class ParameterGroup:
    """An optimizer, its settings (from the config or the group), and the names of the parameters that it updates."""

    optimizer: str
    names: tuple[str, ...]
    lr_factor: float
    weight_decay: float
    settings: dict[str, Scalar]

    @property
    def whole_matrices(self) -> bool:
        """True if each matrix of the group needs one owner."""
        return SPECS[self.optimizer].whole_matrices or self.settings.get("second_moment") == "factored"

    @property
    def by_rows(self) -> bool:
        """True if the optimizer updates rows of tables, without a moment for each weight."""
        return SPECS[self.optimizer].by_rows


def optimizer_groups(store: _core.ParamStore, optim: OptimConfig) -> list[ParameterGroup]:
    """Return the parameter groups of a model, without empty ones.

    Raise UserError for a selector or a group that matches nothing, a parameter in two groups, or a parameter that its
    optimizer cannot update.
    """
    if optim.name not in SPECS:
        raise UserError(f"[config] optim.name: expected one of {', '.join(OPTIMIZERS)}, got '{optim.name}'")
    about = {name: store.describe(name) for name in store.names()}
    roles = {name: str(one["role"]) for name, one in about.items()}
    groups: list[ParameterGroup] = []
    owner: dict[str, GroupSpec] = {}
    for spec in parse_groups(optim.groups):
        names = choose_names(spec.selectors, list(roles), "[config] optim.groups", roles)
        if not names:
            raise UserError(
                f"[config] optim.groups: expected parameters in {_written(spec)}, got none; "
                "leave out a selector with '!'"
            )
        for name in names:
            if name in owner:
                raise UserError(
                    f"[config] optim.groups: expected '{name}' in one group, got it in "
                    f"{_written(owner[name])} and in {_written(spec)}; exclude it from one of them "
                    f"with '!{name}'"
                )
            owner[name] = spec
        if spec.optimizer:
            for name in names:
                _check_updates(spec.optimizer, name, roles[name], about[name]["shape"])
            groups.append(_group(spec.optimizer, names, optim, spec.settings))
        else:
            groups += _default_groups(store, names, optim, spec.settings)
    groups += _default_groups(store, [name for name in roles if name not in owner], optim, {})
    return [group for group in groups if group.names]


def _check_updates(optimizer: str, name: str, role: str, shape: Sequence[int]) -> None:
    """Raise UserError if the optimizer cannot update this parameter."""
    takes = SPECS[optimizer].takes
    if takes and not _is_matrix(role, shape, takes):
        updated = "tables of embeddings" if SPECS[optimizer].by_rows else "matrices of blocks"
        others = dict.fromkeys(one.name for one in SPECS.values() if not one.takes)
        raise UserError(
            f"[config] optim.groups: {optimizer} updates only {updated}, got '{name}' of role {role} and shape "
            f"{list(shape)}; leave it out with '!{name}', or name it in a group of {', '.join(others)}"
        )


def _default_groups(
    store: _core.ParamStore, names: list[str], optim: OptimConfig, own: dict[str, float]
) -> list[ParameterGroup]:
    """Return groups of these names by the optimizers that optim.name gives them. own: settings of a user's group."""
    main = SPECS[optim.name]
    split: dict[str, list[str]] = {"rows": [], "matrices": [], "rest": []}
    for name in names:
        about = store.describe(name)
        matrix = main.by_default and _is_matrix(about["role"], about["shape"], main.by_default)
        split["rows" if about["role"] == ROWS else "matrices" if matrix else "rest"].append(name)
    rates = {"lr_factor": optim.rows_lr_factor, "weight_decay": optim.rows_weight_decay}
    return [
        _group("row_adagrad", split["rows"], optim, {**rates, **own}),
        _group(optim.name, split["matrices"], optim, own),
        _group(main.rest or optim.name, split["rest"], optim, own),
    ]


def by_name(groups: list[ParameterGroup]) -> dict[str, ParameterGroup]:
    """Return the group of every parameter by name."""
    return {name: group for group in groups for name in group.names}


def core_groups(groups: list[ParameterGroup], config: Config) -> list[_core.UpdateGroup]:
    """Return the groups in the form of the core's TrainStep."""
    types = {"fp32": "float32", "bf16": "bfloat16"}
    moment, second = types[config.optim.moment_dtype], types[config.optim.second_moment_dtype]
    return [
        _core.UpdateGroup(
            optimizer=group.optimizer,
            settings=group.settings,
            moment=moment,
            second=second,
            weight_decay=group.weight_decay,
            parameters=list(group.names),
        )
        for group in groups
    ]


def _group(optimizer: str, names: list[str], optim: OptimConfig, own: dict[str, float]) -> ParameterGroup:
    """Return a group of these names. own: settings that override the settings of the config."""
    return ParameterGroup(
        optimizer,
        tuple(names),
        own.get("lr_factor", 1.0),
        own.get("weight_decay", optim.weight_decay),
        {one.name: own.get(one.name, getattr(optim, one.field)) for one in SPECS[optimizer].settings},
    )


def _is_matrix(role: str, shape: Sequence[int], roles: Sequence[str]) -> bool:
    return role in roles and len(shape) >= 2


def _written(spec: GroupSpec) -> str:
    settings = (f"{name}={value:g}" for name, value in spec.settings.items())
    return f"'{spec.optimizer}{': ' if spec.optimizer else ''}{', '.join([*spec.selectors, *settings])}'"


def learning_rate(config: Config, t: int) -> float:
    """Return the learning rate of update t (from 0)."""
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
        phases=parse_phases(optim.phases, config.schedule_steps) if optim.phases else [],
    )
    return rate


def rate_scale(model: ModelConfig, rule: str, role: str, fan_in: int) -> float:
    """Return the factor of a parameter's rate under the rule (docs/maths/mup.md, 2.1; Yang et al. 2022, table 3).

    mup: matrices and head 1 / (d_model // d_base). abs_mup: 1 / d_model, and 1 / (ff_multiple d_model) for the matrix
    after the activation. Embeddings, gains and biases have factor 1. Under the rule sp, all parameters have factor 1.
    """
    if rule == "sp" or role not in ("matrix", "head") or not isinstance(model, MupConfig):
        return 1.0
    if rule == "mup":
        return 1.0 / float(model.d_model // model.d_base)
    if fan_in == model.d_model:
        return 1.0 / float(model.d_model)
    return 1.0 / float(model.ff_multiple * model.d_model)


def assign_scales(store: _core.ParamStore, config: Config, groups: list[ParameterGroup]) -> None:
    """Set the factors of every parameter by role and group: decay and its mode, rate and eps (contracts 11, 12)."""
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
            independent=optim.decay_mode == "independent" and about["role"] != ROWS,
        )
