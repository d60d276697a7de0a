"""Fields of the optimizer and of its learning rate, and the groups of parameters that `optim.groups` spells."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from mudd_core import _core
from mudd_core.config.fields import opt
from mudd_core.config.phases import KINDS as PHASES
from mudd_core.config.values import number

# The optimizers of the core by name and alias.
SPECS = {name: spec for spec in _core.optimizer_specs() for name in (spec.name, *spec.aliases)}
OPTIMIZERS = tuple(SPECS)
_ROLES = tuple(role.name for role in _core.roles())
_Section = TypeVar("_Section")

_BYTES = {"fp32": 4, "bf16": 2}

# Roles to which weight decay applies.
DECAYS = {
    "matrices": ("matrix", "rows"),
    "no_norm_no_bias": ("matrix", "table", "rows"),
    "all": ("matrix", "table", "vector", "rows"),
}


def _settings() -> dict[str, list[tuple[str, _core.OptimizerSetting]]]:
    """Return, for each config field, the optimizers that read it, each with the setting that it reads."""
    found: dict[str, list[tuple[str, _core.OptimizerSetting]]] = {}
    for spec in _core.optimizer_specs():
        for one in spec.settings:
            found.setdefault(one.field, []).append((spec.name, one))
    return found


_SETTINGS = _settings()


def _setting(field: str, *, flags: tuple[str, ...] = (), later: bool = True) -> Any:
    """Declare a field with default, bounds and meaning from the optimizers' settings."""
    readers = _SETTINGS[field]
    first = readers[0][1]
    bound = int if isinstance(first.default, int) else float
    is_number = not isinstance(first.default, bool | str)
    return opt(
        first.default,
        "; ".join(f"{name}: {one.help}" for name, one in readers),
        first.unit,
        low=bound(first.low) if is_number and math.isfinite(first.low) else None,
        high=bound(first.high) if is_number and math.isfinite(first.high) else None,
        choices=tuple(first.choices),
        flags=flags,
        later=later,
    )


def _with_new_settings(section: type[_Section]) -> type[_Section]:
    """Add a field for each setting of an optimizer that the section does not declare."""
    for field in _SETTINGS.keys() - section.__annotations__.keys():
        section.__annotations__[field] = type(_SETTINGS[field][0][1].default)
        setattr(section, field, _setting(field))
    return section


@dataclass(frozen=True)
@_with_new_settings
class OptimConfig:
    """Optimizer and learning rate."""

    name: str = opt(
        "adamw",
        "optimizer, or FILE.py:NAME for your own (docs/your-own.md); "
        f"{'; '.join(f'{spec.name}: {spec.help}' for spec in _core.optimizer_specs())}",
        choices=OPTIMIZERS,
    )
    lr: float = opt(1e-3, "peak learning rate", "", low=0.0, flags=("learning_rate",))
    beta1: float = _setting("beta1", flags=("adamw_beta1",), later=False)
    beta2: float = _setting("beta2", flags=("adamw_beta2",), later=False)
    momentum: float = _setting("momentum", later=False)
    nesterov: bool = _setting("nesterov")
    eps: float = opt(
        1e-8,
        "epsilon in the denominator, outside the square root of the second moment",
        low=0.0,
        flags=("adamw_eps",),
    )
    eps_root: float = _setting("eps_root")
    moment_dtype: str = opt(
        "fp32",
        "storage type of the first moment; bf16 = round it after each update is computed",
        choices=("fp32", "bf16"),
    )
    second_moment_dtype: str = opt(
        "fp32",
        "storage type of the second moment of adamw; bf16 = rounded up or down by an offset that changes with "
        "each update, so that the errors cancel (docs/maths/optimizers.md)",
        choices=("fp32", "bf16"),
        later=True,
    )
    second_moment: str = _setting("second_moment")
    rule: str = opt(
        "sp",
        "learning rate of matrices and head. sp = the same as for all parameters; mup = divided by "
        "d_model / d_base; abs_mup = divided by their fan-in",
        choices=("sp", "mup", "abs_mup"),
    )
    eps_scaling: bool = opt(False, "scale eps by optim.rule, like the learning rate")
    weight_decay: float = opt(
        0.1,
        "weight decay: an update subtracts this fraction of each weight, times the factor that "
        "optim.decay_mode sets",
        low=0.0,
        flags=("weight_decay_rate",),
    )
    decay_mode: str = opt(
        "coupled",
        "coupled = multiply weight_decay by the learning rate of the weight; independent = multiply "
        "it by the schedule's factor only",
        choices=("coupled", "independent"),
    )
    decay: str = opt("matrices", "parameters to which weight decay applies", choices=tuple(DECAYS))
    clip: float = opt(
        1.0, "clip gradients to this global norm; 0 = no clipping", low=0.0, flags=("max_grad_norm",)
    )
    schedule: str = opt(
        "cosine",
        "learning rate schedule after warm-up; wsd = constant, then linear decay over optim.decay_steps; "
        "inverse_sqrt = peak / sqrt(1 + (t - W) / S), S is optim.decay_steps; phases = the list optim.phases is the "
        "whole schedule, with warm-up",
        choices=tuple(_core.schedules()),
    )
    warmup_steps: int = opt(0, "number of updates W of linear warm-up", "steps", low=0)
    warmup: str = opt(
        "next",
        "learning rate of update t (from 0) in warm-up: next = peak (t + 1) / W; zero = peak t / W; "
        "floor = a line from the final rate to the peak; between = peak (t + 1) / (W + 1)",
        choices=tuple(_core.warmups()),
    )
    final_lr_ratio: float = opt(
        0.1, "final learning rate, as a fraction of the peak", "fraction", low=0.0, high=1.0
    )
    schedule_steps: int = opt(
        0,
        "length of the schedule in updates, with warm-up and decay; optim.after_schedule follows; 0 "
        "= train.steps",
        "steps",
        low=0,
        later=True,
    )
    after_schedule: str = opt(
        "final",
        "learning rate after optim.schedule_steps: final = keep the last rate; zero = 0",
        choices=("final", "zero"),
        later=True,
    )
    decay_steps: int = opt(
        0,
        "wsd: number of updates of the final decay, 0 = a tenth of the schedule; inverse_sqrt: timescale S, 0 = "
        "the warm-up, or 10,000 without one",
        "steps",
        low=0,
    )
    phases: str = opt(
        "",
        "list of phases KIND:STEPS:FROM:TO for optim.schedule=phases, such as "
        "linear:100:0:1,constant:500:1,cosine:rest:1:0.1; FROM and TO are factors of optim.lr; the last phase may "
        f"have rest as STEPS; a KIND is {', '.join(PHASES[:-1])} or {PHASES[-1]}; empty = none",
        later=True,
    )
    muon_momentum: float = _setting("muon_momentum")
    muon_steps: int = _setting("muon_steps")
    muon_adjust_lr: str = _setting("muon_adjust_lr")
    rows_lr_factor: float = opt(
        8.0,
        "factor of the learning rate for the table of n-grams (model.ngram_rows), which row_adagrad updates; a group "
        "of optim.groups with the table replaces the factor if it names an optimizer or sets lr_factor",
        low=0.0,
        later=True,
    )
    rows_weight_decay: float = opt(
        0.1,
        "weight decay of the table of n-grams: an update subtracts this fraction times the learning rate of the table; "
        "a group of optim.groups with the table replaces it if it names an optimizer or sets weight_decay",
        low=0.0,
        later=True,
    )
    groups: str = opt(
        "",
        "parameters with another optimizer, such as 'lion: head, lr_factor=0.1; sgd: role=gain, "
        "blocks.0.*'. An optimizer is one of optim.name, or FILE.py:NAME for your own. A group lists "
        "name patterns (as in train.trainable) or roles, then settings: lr_factor, which multiplies "
        "lr, weight_decay, beta1, beta2 or momentum. A group without an optimizer, such as 'embed, lr_factor=4', "
        "only sets lr_factor or weight_decay. All other parameters use optim.name; empty = none",
        later=True,
    )

    @property
    def moment_bytes(self) -> int:
        """The bytes of a matrix element's moments in adamw, without the row and column moments."""
        second = 0 if self.second_moment == "factored" else _BYTES[self.second_moment_dtype]
        return _BYTES[self.moment_dtype] + second


@dataclass(frozen=True)
class GroupSpec:
    """A parsed group. selectors: patterns of names or role=<role>; ! before a selector excludes.

    optimizer: empty if the parameters keep the optimizer that they have without the group.
    """

    optimizer: str
    selectors: tuple[str, ...]
    settings: dict[str, float]


_OWN_IN_GROUP = re.compile(r"\s*([^;,=]*\.py:\w+)\s*:")


def own_in_groups(text: str) -> list[str]:
    """Return the optimizers FILE.py:NAME in the value of optim.groups, each once, in order."""
    return list(dict.fromkeys(found[1] for part in text.split(";") if (found := _OWN_IN_GROUP.match(part))))


def parse_groups(text: str) -> list[GroupSpec]:
    """Parse the groups of `optimizer: selector, ..., setting=value; ...`; raise ValueError for a malformed string.

    The optimizer and its colon may be absent.
    """
    return [_parse_group(part) for part in text.split(";") if part.strip()]


def _parse_group(part: str) -> GroupSpec:
    own = _OWN_IN_GROUP.match(part)
    name, colon, rest = (own[1], ":", part[own.end() :]) if own else part.rpartition(":")
    name = name.strip()
    bare = "" if colon else "or settings without an optimizer, as in 'head, lr_factor=0.1', "
    expected = (
        f"expected groups like 'lion: head, lr_factor=0.1; sgd: role=gain' with optimizers of "
        f"{', '.join(OPTIMIZERS)} or FILE.py:NAME, {bare}got '{part.strip()}'"
    )
    if colon and name not in SPECS:
        raise ValueError(expected)
    selectors: list[str] = []
    settings: dict[str, float] = {}
    for word in filter(None, (word.strip() for word in rest.split(","))):
        key, equals, value = (side.strip() for side in word.partition("="))
        if not equals:
            selectors.append(word)
        elif key.removeprefix("!").strip() == "role":
            if value not in _ROLES:
                raise ValueError(f"expected a role of {', '.join(_ROLES)}, got '{word}'")
            selectors.append(f"{'!' if key.startswith('!') else ''}role={value}")
        elif key in settings:
            raise ValueError(f"expected {key} once in the group '{part.strip()}'")
        else:
            settings[key] = _group_setting(name, key, value)
    if not (name or settings):
        raise ValueError(expected)
    if not selectors:
        raise ValueError(f"expected patterns of names or role=<role> in the group '{part.strip()}', got none")
    return GroupSpec(name, tuple(selectors), settings)


def _group_setting(optimizer: str, key: str, text: str) -> float:
    settings = SPECS[optimizer].settings if optimizer else ()
    own = {setting.name: setting for setting in settings if setting.in_groups}
    known = ("lr_factor", "weight_decay", *own)
    if key not in known:
        group = optimizer or "a group without an optimizer"
        raise ValueError(f"expected settings of {', '.join(known)} for {group}, got '{key}={text}'")
    low, high = (own[key].low, own[key].high) if key in own else (0.0, math.inf)
    return number(key, text, low if math.isfinite(low) else None, below=high if math.isfinite(high) else None)
