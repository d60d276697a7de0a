"""Arguments of Hydra's command line: key=value, +key=value, ++key=value, ~key and the options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.config.arguments import Arguments, argument
from mudd_core.config.suggest import nearest
from mudd_core.programs.moe.hydra.values import Node, parse_choices

Kind = Literal["change", "add", "force", "delete"]
_KEY = re.compile(r"[\w$\-]+([./][\w$\-]+)*", re.ASCII)
# Option -> the placeholder of its value; empty if it has no value.
OPTIONS = {"--config-path": "DIR", "--config-name": "NAME", "--cfg": "job", "--resolve": "", "--multirun": ""}
_SHORT = {"-cp": "--config-path", "-cn": "--config-name", "-c": "--cfg", "-m": "--multirun"}


@dataclass(frozen=True)
class HydraWord:
    """One override.

    choices: its values; several only with --multirun, none for `~key`. word: the argument as the user wrote it.
    """

    kind: Kind
    key: str
    choices: tuple[Node, ...]
    word: str

    @property
    def value(self) -> Node:
        """Return the one value; null for `~key`."""
        return self.choices[0] if self.choices else None


@dataclass
class HydraWords:
    """Options by name, and overrides in their order."""

    options: dict[str, str] = field(default_factory=dict)
    overrides: list[HydraWord] = field(default_factory=list)


def parse_override(word: str) -> HydraWord:
    """Parse an argument to an override; raise UserError if it is malformed."""
    item = argument(word)
    prefix, text = item.mark, item.value
    key = item.option if prefix in ("-", "--") else item.key
    if "@" in key:
        raise UserError(
            f"[hydra] {word}: choosing a package (group@package) is not supported; use +key=value"
        )
    if not _KEY.fullmatch(key):
        raise UserError(f"[hydra] {word}: expected key=value, +key=value, ++key=value or ~key")
    if text is None and prefix != "~":
        raise UserError(f"[hydra] {word}: expected {key}=value; ~{key} deletes a key")
    try:
        choices = () if text is None else tuple(parse_choices(text))
    except ValueError as error:
        raise UserError(f"[hydra] {word}: {error}") from None
    return HydraWord(_kind(prefix), key, choices, word)


def _kind(prefix: str) -> Kind:
    match prefix:
        case "++":
            return "force"
        case "+":
            return "add"
        case "~":
            return "delete"
        case _:
            return "change"


def split_hydra_words(words: Sequence[str]) -> HydraWords:
    """Parse options and overrides; raise UserError for an unknown or repeated option."""
    found, arguments = HydraWords(), Arguments(words)
    for item in arguments:
        if item.mark not in ("-", "--"):
            found.overrides.append(parse_override(item.raw))
            continue
        name, value = _SHORT.get(item.option, item.option), item.value
        if name not in OPTIONS:
            hint = nearest(name, OPTIONS) or f"; expected one of {', '.join(OPTIONS)}, or key=value"
            raise UserError(f"[hydra] unknown option '{name}'{hint}")
        if name in found.options:
            raise UserError(f"[hydra] {name}: expected it once, got it twice")
        if OPTIONS[name] and value is None and (value := arguments.value()) is None:
            raise UserError(f"[hydra] {name}: expected {OPTIONS[name]} after it")
        if not OPTIONS[name] and value is not None:
            raise UserError(f"[hydra] {name}: expected no value, got '{value}'")
        found.options[name] = value or ""
    if found.options.get("--cfg", "job") != "job":
        raise UserError(f"[hydra] --cfg: expected job, got '{found.options['--cfg']}'")
    return found
