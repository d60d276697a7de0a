"""Which optimizer updates which parameter: optim.groups over a model's names; all others follow optim.name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config, OptimConfig
from mudd_core.config.groups import GroupSpec, parse_groups
from mudd_core.engine.name_patterns import choose_names

if TYPE_CHECKING:
    from mudd_core import _core

_BLOCK_MATRICES = ("matrix", "slots")  # what optim.name=muon gives to muon
_MUON_ROLES = (*_BLOCK_MATRICES, "router", "mix")


@dataclass(frozen=True)
class ParameterGroup:
    """An optimizer with its settings and the names of the parameters that it updates.

    settings: of the config, or the group's own: beta1, beta2, momentum (muon's too).
    """

    optimizer: str
    names: tuple[str, ...]
    lr_factor: float
    weight_decay: float
    settings: dict[str, float]


def optimizer_groups(store: _core.ParamStore, optim: OptimConfig) -> list[ParameterGroup]:
    """The groups that share a model's parameters, empty ones left out.

    UserError for a selector that matches nothing, a parameter in two groups, and parameters that muon cannot take.
    """
    about = {name: store.describe(name) for name in store.names()}
    roles = {name: str(one["role"]) for name, one in about.items()}
    groups: list[ParameterGroup] = []
    owner: dict[str, GroupSpec] = {}
    for spec in parse_groups(optim.groups):
        names = choose_names(spec.selectors, list(roles), "optim.groups", roles)
        for name in names:
            if name in owner:
                raise UserError(
                    f"[config] optim.groups: expected '{name}' in one group, got it in {_written(owner[name])} and in "
                    f"{_written(spec)}; leave it out of one of them with '!{name}'"
                )
            owner[name] = spec
            if spec.optimizer == "muon" and not _is_matrix(roles[name], about[name]["shape"], _MUON_ROLES):
                raise UserError(
                    f"[config] optim.groups: muon takes matrices of blocks, got '{name}' of role {roles[name]} and "
                    f"shape {list(about[name]['shape'])}; leave it out with '!{name}', or name it in a group of "
                    "adamw, lion or sgd"
                )
        groups.append(_group(spec.optimizer, names, optim, spec.settings))
    rest = [name for name in roles if name not in owner]
    if optim.name == "muon":
        matrices = [name for name in rest if _is_matrix(roles[name], about[name]["shape"], _BLOCK_MATRICES)]
        groups.append(_group("muon", matrices, optim, {}))
        rest = [name for name in rest if name not in set(matrices)]
    groups.append(_group("adamw" if optim.name == "muon" else optim.name, rest, optim, {}))
    return [group for group in groups if group.names]


def by_name(groups: list[ParameterGroup]) -> dict[str, ParameterGroup]:
    """The group of every parameter."""
    return {name: group for group in groups for name in group.names}


def core_groups(groups: list[ParameterGroup], config: Config) -> list[_core.UpdateGroup]:
    """The groups as the core's TrainStep takes them."""
    from mudd_core import _core

    optim = config.optim
    moment = {"fp32": "float32", "bf16": "bfloat16"}[optim.moment_dtype]
    return [
        _core.UpdateGroup(
            optimizer=group.optimizer,
            settings=_core.OptimizerSettings(
                moment=moment,
                muon_steps=optim.muon_steps,
                muon_adjust_lr=optim.muon_adjust_lr,
                eps_root=optim.eps_root,
                nesterov=optim.nesterov,
                **group.settings,
            ),
            weight_decay=group.weight_decay,
            parameters=list(group.names),
        )
        for group in groups
    ]


def _group(optimizer: str, names: list[str], optim: OptimConfig, own: dict[str, float]) -> ParameterGroup:
    settings = {"beta1": optim.beta1, "beta2": optim.beta2}
    settings |= {"momentum": optim.momentum, "muon_momentum": optim.muon_momentum}
    for key in ("beta1", "beta2", "momentum"):
        if key in own:
            settings["muon_momentum" if optimizer == "muon" and key == "momentum" else key] = own[key]
    return ParameterGroup(
        optimizer,
        tuple(names),
        own.get("lr_factor", 1.0),
        own.get("weight_decay", optim.weight_decay),
        settings,
    )


def _is_matrix(role: str, shape: Sequence[int], roles: tuple[str, ...]) -> bool:
    return role in roles and len(shape) >= 2


def _written(spec: GroupSpec) -> str:
    return f"'{spec.optimizer}: {', '.join(spec.selectors)}'"
