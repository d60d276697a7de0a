"""Parsing of command-line arguments into overrides of config fields.

Four grammars are accepted: `--config.train.steps=100` (also with a space), `train.steps=100`,
`+train.steps=100` and `++train.steps=100`, `--long-flag 100`. Values are parsed by the type of the field, so
`data.path=007` stays a string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from mudd_core.base.errors import UserError
from mudd_core.config.arguments import Argument, Arguments, argument, is_plain, with_values
from mudd_core.config.families import ModelConfig, in_family, named_family
from mudd_core.config.families.crossed import crossed
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import FieldInfo, Scalar, replace_path, walk
from mudd_core.config.mix import SOURCES, option_of, with_option
from mudd_core.config.own_files import name_own, split_name
from mudd_core.config.own_optimizers import GROUPS, name_optimizers, names_in
from mudd_core.config.schema import Sections
from mudd_core.config.suggest import nearest, nearest_field, nearest_option
from mudd_core.config.values import flag, number, whole

AnyConfig = TypeVar("AnyConfig", bound="Sections")
# If several sections have a field of this name, the first of these sections is meant: --seed is train.seed,
# --vocab-size is data.vocab_size. Fields of lora have no short names: --rank would be confused with --ranks, and
# --dropout is another program's option.
_SECTIONS = (
    "train",
    "data",
    "optim",
    "model",
    "loss",
    "eval",
    "sample",
    "start",
    "mesh",
    "dist",
    "log",
    "hub",
    "storage",
    "tune",
)


@dataclass(frozen=True)
class Override:
    """An override `path = text` with its argument, for messages."""

    path: str
    text: str
    word: str


def typed_names(overrides: Sequence[Override]) -> dict[str, str]:
    """Return, for each field set by a flag, the flag and the field as shown in messages."""
    flags = {item.path: argument(item.word).option for item in overrides}
    return {
        path: f"{flag} ({path})" for path, flag in flags.items() if flag.startswith("--") and "." not in flag
    }


def parse_value(info: FieldInfo, text: str) -> Scalar:
    """Parse a string as the field's type; raise UserError with field, rule and string."""
    name = f"[config] {info.path}"
    if info.kind is bool:
        return flag(name, text)
    if info.kind is int:
        return whole(name, text)
    if info.kind is float:
        return number(name, text)
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def field_path(name: str, infos: Sequence[FieldInfo], first: str = "") -> str | None:
    """Return the field of a path, leaf or alias, with or without its section; None if there is none.

    first: the section to prefer if several have the name; else the order is train, data, optim, ...
    """
    name = name.replace("-", "_")
    if any(info.path == name for info in infos):
        return name
    if any(info.path.startswith(f"{name}.") for info in infos):  # a section's name: --data is not mesh.data
        return None
    section, _, leaf = name.rpartition(".")
    hits = {}
    for info in infos:
        place, _, own = info.path.rpartition(".")
        if (leaf == own or leaf in info.flags) and section in ("", place):
            hits[place] = info.path
    return next((hits[place] for place in (first, *_SECTIONS) if place in hits), None)


def _dashed(
    item: Argument, rest: Arguments, infos: Sequence[FieldInfo], known: Sequence[str], first: str
) -> Override:
    """Parse `--config.path=v`, `--config.path v`, `--flag=v` or `--flag v`; the value may be the next argument of
    `rest`.
    """
    name, word = item.key, item.raw
    path = item.name if item.name != name or is_source_option(name) else field_path(name, infos, first)
    if path is None:
        own = next((str(info.value) for info in infos if info.path == FAMILY), "")
        if reason := crossed(own, name.replace("-", "_")):
            raise UserError(f"[config] {reason}")
        options = [option for option in known if option.startswith("--")]
        hint = nearest_field(name, infos) if "." in name else nearest_option(name, infos, options)
        raise UserError(f"[arguments] unknown option '--{name}'{hint}")
    if item.value is not None:
        return Override(path, item.value, word)
    is_switch, behind = any(info.path == path and info.kind is bool for info in infos), rest.next()
    if is_switch and (behind is None or not is_plain(behind) or behind.mark == "-"):
        return Override(path, "true", word)
    if (value := rest.value()) is None:
        choices = next((info.choices for info in infos if info.path == path), ())
        expected = f"one of {', '.join(map(str, choices))}" if choices else "a value"
        raise UserError(f"[arguments] {word}: expected {expected} after it")
    return Override(path, value, word)


def _plain(item: Argument, known: Sequence[str]) -> Override:
    """Parse `path=v`, `+path=v` or `++path=v` without a leading dash."""
    word = item.raw
    if item.mark == "~":
        raise UserError(f"[arguments] {word}: a field cannot be removed; set another value")
    if item.value is None:
        if word in known:
            raise UserError(f"[arguments] '{word}' is a command and must be the first argument")
        commands = [name for name in known if not name.startswith("--")]
        hint = nearest(word, commands) or (f"; commands: {', '.join(commands)}" if commands else "")
        raise UserError(f"[arguments] '{word}' is neither a command nor name=value{hint}")
    return Override(item.option if item.mark == "-" else item.name, item.value, word)


def named_in(words: Sequence[str], path: str) -> str:
    """Return the FILE.py:NAME that the arguments assign to a field, in any grammar; empty if none does.

    For optim.groups: its first one.
    """
    names = (path, "family") if path == FAMILY else (path,)
    found = ""
    for item, value in with_values(words):
        if item.name.replace("-", "_") not in names:
            continue
        if path == GROUPS:
            found = next(iter(names_in(path, value)), found)
        elif split_name(value) is not None:
            found = value
    return found


def in_asked_family(config: AnyConfig, name: str) -> AnyConfig:
    """Return the config with the family that FILE.py:NAME in `name` registers, so that arguments can set its fields.

    Other names return the config unchanged.
    """
    if split_name(name) is None:
        return config
    name_own(FAMILY, name)
    return replace(config, model=in_family(config.model, named_family(name)))


def split_words(
    words: Sequence[str], config: Sections, known: Sequence[str] = (), first: str = ""
) -> list[Override]:
    """Return the overrides in the given arguments.

    known: commands and options that a message may suggest. first: section of `--name` if several have the name.
    """
    infos = list(walk(in_asked_family(config, named_in(words, FAMILY))))
    arguments = Arguments(words)
    return [
        _dashed(item, arguments, infos, known, first) if item.mark == "--" else _plain(item, known)
        for item in arguments
    ]


_OLD_MICRO_BATCH = re.compile(r"micro[_-]batch(?![_-]size)")


def _with_shards_in_a_run(config: AnyConfig, shards: int) -> AnyConfig:
    """Return the config with train.micro_batch as earlier versions meant it; print a note about its new name."""
    size = config.train.sequences_of(shards)
    print(f"note: train.micro_batch={shards} counts shards; train.micro_batch_size={size} counts sequences")
    return replace_path(config, "train.micro_batch_size", size)


def is_source_option(path: str) -> bool:
    """Return True for data.sources.NAME.OPTION."""
    return path.startswith(f"{SOURCES}.") and option_of(path) is not None


def with_source_option(config: AnyConfig, path: str, text: str) -> AnyConfig:
    """Return the config with data.sources.NAME.OPTION set; raise UserError for an unknown option."""
    found = option_of(path)
    assert found is not None
    try:
        sources = with_option(config.data.sources, *found, text)
    except ValueError as fault:
        raise UserError(f"[config] {path}: {fault}") from None
    return replace_path(config, SOURCES, sources)


def apply_overrides(config: AnyConfig, overrides: Sequence[Override]) -> AnyConfig:
    """Return the config with all overrides applied in order; raise UserError with the nearest name for an unknown
    path.
    """
    families = [item.text for item in overrides if item.path == FAMILY and split_name(item.text)]
    config = in_asked_family(config, "".join(families[-1:]))
    before, fields, old_micro_batch = config.model, set[str](), -1
    # an override changes values only, never the set of fields
    infos = {info.path: info for info in walk(config)} if overrides else {}
    for item in overrides:
        if is_source_option(item.path):
            config = with_source_option(config, item.path, item.text)
            continue
        # Here an alias needs its section; only `--leaf` may leave the section out.
        path = field_path(item.path, list(infos.values())) if "." in item.path else item.path
        if path is None or path not in infos:
            if reason := crossed(config.model.family, item.path):
                raise UserError(f"[config] {reason}")
            known = field_path(item.path, list(infos.values()))
            hint = nearest_field(known or item.path, list(infos.values()))
            raise UserError(f"[config] unknown field '{item.path}' in '{item.word}'{hint}")
        name = typed_names([item]).get(path, path)
        value = parse_value(replace(infos[path], path=name), item.text)
        name_own(path, str(value))
        name_optimizers(path, str(value))
        if path == "train.micro_batch_size":
            old_micro_batch = int(value) if _OLD_MICRO_BATCH.search(item.word) else -1
        config = replace_path(config, path, value)
        fields |= {path.removeprefix("model.")} if path.startswith("model.") else set()
    if old_micro_batch >= 0:  # now the batch and its logical shards are known
        config = _with_shards_in_a_run(config, old_micro_batch)
    require_consistent(config, before, fields)
    return config


def require_consistent(config: Sections, before: ModelConfig, fields: Set[str]) -> None:
    """Raise UserError if the model's family forbids changing only these fields. before: the old model."""
    if wrong := config.model.overridden(before, fields):
        raise UserError(f"[config] {wrong}")
