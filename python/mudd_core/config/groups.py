"""What optim.groups says: groups of parameters, each with its optimizer and settings."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.values import number

# Every optimizer of the core, with the settings below one that a group may give it.
_BELOW_ONE = {
    "adamw": ("beta1", "beta2"),
    "adam_pax": ("beta1", "beta2"),
    "lion": ("beta1", "beta2"),
    "sgd": ("momentum",),
    "muon": ("momentum",),
}
OPTIMIZERS = tuple(_BELOW_ONE)
ROLES = ("embedding", "matrix", "gain", "bias", "head", "router", "slots", "mix")


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
            if value not in ROLES:
                raise ValueError(f"expected a role of {', '.join(ROLES)}, got '{word}'")
            selectors.append(f"{'!' if key.startswith('!') else ''}role={value}")
        elif key in settings:
            raise ValueError(f"expected {key} once in the group '{part.strip()}'")
        else:
            settings[key] = _setting(name, key, value)
    if not selectors:
        raise ValueError(f"expected patterns of names or role=<role> in the group '{part.strip()}', got none")
    return GroupSpec(name, tuple(selectors), settings)


def _setting(optimizer: str, key: str, text: str) -> float:
    known = ("lr_factor", "weight_decay", *_BELOW_ONE[optimizer])
    if key not in known:
        raise ValueError(f"expected settings of {', '.join(known)} for {optimizer}, got '{key}={text}'")
    return number(key, text, 0, below=1 if key in _BELOW_ONE[optimizer] else None)
