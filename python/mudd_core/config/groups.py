"""What optim.groups says: groups of parameters, each with its optimizer and settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.config.values import number

# By name and alias.
SPECS = {name: spec for spec in _core.optimizer_specs() for name in (spec.name, *spec.aliases)}
OPTIMIZERS = tuple(SPECS)
_ROLES = tuple(role.name for role in _core.roles())


@dataclass(frozen=True)
class GroupSpec:
    """One group as it is written. selectors: patterns of names or role=<role>, with ! before those to leave out."""

    optimizer: str
    selectors: tuple[str, ...]
    settings: dict[str, float]


def parse_groups(text: str) -> list[GroupSpec]:
    """The groups of `optimizer: selector, ..., setting=value; ...`; ValueError says what is wrong with the string."""
    return [_parse_group(part) for part in text.split(";") if part.strip()]


def _parse_group(part: str) -> GroupSpec:
    name, colon, rest = part.partition(":")
    name = name.strip()
    if not colon or name not in OPTIMIZERS:
        raise ValueError(
            f"expected groups like 'lion: head, lr_factor=0.1; sgd: role=gain' with optimizers of "
            f"{', '.join(OPTIMIZERS)}, got '{part.strip()}'"
        )
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
            settings[key] = _setting(name, key, value)
    if not selectors:
        raise ValueError(f"expected patterns of names or role=<role> in the group '{part.strip()}', got none")
    return GroupSpec(name, tuple(selectors), settings)


def _setting(optimizer: str, key: str, text: str) -> float:
    own = {setting.name: setting for setting in SPECS[optimizer].settings if setting.in_groups}
    known = ("lr_factor", "weight_decay", *own)
    if key not in known:
        raise ValueError(f"expected settings of {', '.join(known)} for {optimizer}, got '{key}={text}'")
    low, high = (own[key].low, own[key].high) if key in own else (0.0, math.inf)
    return number(key, text, low, below=high if math.isfinite(high) else None)
