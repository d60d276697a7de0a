"""In which grammar a command line is: this program's own, or that of one of the original programs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import find_config, read_config
from mudd_core.config.aliases import ALIASES
from mudd_core.config.arguments import argument
from mudd_core.config.fields import replace_path
from mudd_core.config.keys import rows_of
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.grammars.command_line import CommandLine
from mudd_core.grammars.devices import refuse_devices
from mudd_core.grammars.resolved import Resolved

# First arguments that are commands of one grammar only.
COMMANDS = {"clm": "hydra", "jax_lm.train": "jax_lm"}
_FILES = {"run_clm.py": "clm"}  # the original program's file, and the command that takes its place
_YML = (".yml", ".yaml")
_KEY = re.compile(r"[A-Za-z_][\w./@]*")


def is_yml(word: str) -> bool:
    """Whether an argument names a yml file, by its ending."""
    return "=" not in word and not word.startswith("-") and word.endswith(_YML)


def drop_program(words: list[str]) -> tuple[str, list[str]]:
    """Remove an original program's own file in front of its arguments; (its command here, a note on it).

    MaxText/train.py in front of a yml file has no command of its own; run_clm.py is clm.
    """
    file = words[0].rpartition("/")[2] if words else ""
    if not (file in _FILES or (file == "train.py" and is_yml("".join(words[1:2])))):
        return "", []
    return _FILES.get(file, ""), [f"'{words.pop(0)}': dropped; this program takes its place"]


def grammar_of(asked: CommandLine) -> str:
    """The name of the grammar (a module of this folder); empty for this program's own."""
    if is_yml(asked.config) and asked.config not in ALIASES:
        return "maxtext"
    if _of_mu_transformer(asked):
        return "mu_transformer"
    if asked.command in COMMANDS:
        return COMMANDS[asked.command]
    if not asked.config:
        if any(_known_alone("jax_lm", _flags(asked.words))) or _is_train_of_jax_lm(asked):
            return "jax_lm"
        if any(_known_alone("hydra", _assigned(asked.words))):
            return "hydra"
    return ""


def resolve(asked: CommandLine) -> Resolved | None:
    """The command in another program's grammar as an ordinary config, not checked yet; None if it is in ours."""
    name = grammar_of(asked)
    refuse_devices(name, asked.options)
    if not name:
        return None
    module = importlib.import_module(f"mudd_core.grammars.{name}")
    resolved: Resolved = module.resolve(asked)
    if resolved.config.log.style != "auto":
        return resolved
    return replace(resolved, config=replace_path(resolved.config, "log.style", resolved.style))


def _is_train_of_jax_lm(asked: CommandLine) -> bool:
    """Whether `train` is typed with flags of jax-lm-training alone, some of which this program has as well."""
    names, rows = list(_flags(asked.words)), rows_of("jax_lm")
    return (
        asked.command == "train"
        and bool(names)
        and not any(_assigned(asked.words))
        and all(n in rows for n in names)
    )


def _of_mu_transformer(asked: CommandLine) -> bool:
    rows = rows_of("mu_transformer")
    if not rows or not asked.config or is_yml(asked.config):
        return False
    if "mu_transformer/" in asked.config or _returns_config_dict(asked.config):
        return True
    names = [*_flags(asked.words), *_assigned(asked.words)]
    if not any(_known_alone("mu_transformer", names)):
        return False
    try:
        return read_config(asked.config).model.family == "mup"
    except UserError:
        return False  # the next reader reports it, and better


def _returns_config_dict(config: str) -> bool:
    try:
        file = find_config(config)
        return file.suffix == ".py" and "ml_collections" in Path(file).read_text(encoding="utf-8")
    except (UserError, OSError, ValueError):
        return False


def _flags(words: Sequence[str]) -> Iterator[str]:
    for item in map(argument, words):
        if item.mark == "--":
            yield item.name.replace("-", "_")


def _assigned(words: Sequence[str]) -> Iterator[str]:
    for item in map(argument, words):
        assigns = item.value is not None and item.mark in ("", "+", "++")
        if item.mark == "~" or (assigns and _KEY.fullmatch(item.key)):
            yield item.name


def _known_alone(grammar: str, names: Sequence[str] | Iterator[str]) -> Iterator[str]:
    """Those of the names that the grammar has and this program has not."""
    rows, ours = rows_of(grammar), fields_of_all()
    for name in names:
        if name in rows and field_path(name, ours) is None:
            yield name
