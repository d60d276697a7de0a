"""Command-line words to overrides of config fields.

Four grammars give one list: `--config.train.steps=100` (also with a blank), `train.steps=100`,
`+train.steps=100` and `++train.steps=100`, `--long-flag 100`. Values are read by the type of the field, so
`data.path=007` stays a text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mudd_core.config.fields import FieldInfo, Scalar, replace_path, walk
from mudd_core.config.schema import Config
from mudd_core.errors import UserError

_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}
AnyConfig = TypeVar("AnyConfig", bound=Config)


@dataclass(frozen=True)
class Override:
    """One `path = text` with the word it came from, for messages."""

    path: str
    text: str
    word: str


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest of the names, or nothing when none is close."""
    pool = list(names)
    found = difflib.get_close_matches(name, pool, n=1, cutoff=0.5)
    if not found:  # a right leaf under a wrong section
        leaf = name.rpartition(".")[2]
        by_leaf = {path.rpartition(".")[2]: path for path in reversed(pool)}
        found = [by_leaf[key] for key in difflib.get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.6)]
    return f"; did you mean '{found[0]}'?" if found else ""


def parse_value(info: FieldInfo, text: str) -> Scalar:
    """The text as the field's type; UserError names field, rule and text."""

    def refuse(wanted: str) -> UserError:
        return UserError(f"[config] {info.path}: expected {wanted}, got '{text}'")

    if info.kind is bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise refuse("true or false")
        return word in _TRUE
    if info.kind is int:
        try:
            return int(text)
        except ValueError:
            pass
        try:  # 1e6 is a whole number too
            number = float(text)
        except ValueError:
            raise refuse("a whole number") from None
        if not (math.isfinite(number) and number == int(number)):
            raise refuse("a whole number")
        return int(number)
    if info.kind is float:
        try:
            number = float(text)
        except ValueError:
            raise refuse("a number") from None
        if not math.isfinite(number):
            raise refuse("a finite number")
        return number
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _flag_path(flag: str, infos: Sequence[FieldInfo]) -> str | None:
    """The field that `--flag` names by its leaf or a further name; None if no field has it."""
    name = flag.replace("-", "_")
    exact = [info.path for info in infos if info.path == name]
    hits = exact or [i.path for i in infos if i.path.rpartition(".")[2] == name or name in i.flags]
    if len(hits) > 1:
        choices = " or ".join(f"--config.{path}" for path in hits)
        raise UserError(f"[arguments] --{flag}: names several fields; say {choices}")
    return hits[0] if hits else None


def _dashed(word: str, rest: list[str], infos: Sequence[FieldInfo], known_flags: Iterable[str]) -> Override:
    """`--config.path=v`, `--config.path v`, `--flag=v` or `--flag v`; may take its value off `rest`."""
    name, equals, text = word[2:].partition("=")
    path = name[len("config.") :] if name.startswith("config.") else _flag_path(name, infos)
    if path is None:
        flags = {f"--{flag}" for info in infos for flag in _leaf_flags(info)} | set(known_flags)
        raise UserError(f"[arguments] unknown option '--{name}'{nearest('--' + name, sorted(flags))}")
    if equals:
        return Override(path, text, word)
    is_switch = any(info.path == path and info.kind is bool for info in infos)
    if is_switch and (not rest or "=" in rest[0] or rest[0].startswith("-")):
        return Override(path, "true", word)
    if not rest:
        raise UserError(f"[arguments] {word}: expected a value behind it")
    return Override(path, rest.pop(0), word)


def _plain(word: str, known_flags: Iterable[str]) -> Override:
    """`path=v`, `+path=v` or `++path=v`."""
    if word.startswith("~"):
        raise UserError(f"[arguments] {word}: fields of a typed config cannot be removed; set a value")
    name, equals, text = word.lstrip("+").partition("=")
    if not equals:
        raise UserError(
            f"[arguments] '{word}' is neither a command nor name=value{nearest(word, known_flags)}"
        )
    return Override(name.removeprefix("config."), text, word)


def split_words(words: Sequence[str], config: Config, known: Sequence[str] = ()) -> list[Override]:
    """Overrides in the given words. known: further words that 'did you mean' may propose."""
    infos = list(walk(config))
    overrides: list[Override] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        overrides.append(_dashed(word, rest, infos, known) if word.startswith("--") else _plain(word, known))
    return overrides


def _leaf_flags(info: FieldInfo) -> list[str]:
    names = [info.path.rpartition(".")[2], *info.flags]
    return [name.replace("_", "-") for name in names]


def apply_overrides(config: AnyConfig, overrides: Sequence[Override]) -> AnyConfig:
    """The config with every override set, in order; an unknown path is an error with the nearest name."""
    before = config.model
    for item in overrides:
        infos = {info.path: info for info in walk(config)}
        info = infos.get(item.path)
        if info is None:
            hint = nearest(item.path, infos)
            raise UserError(f"[config] unknown field '{item.path}' in '{item.word}'{hint}")
        config = replace_path(config, item.path, parse_value(info, item.text))
    fields = {item.path.removeprefix("model.") for item in overrides if item.path.startswith("model.")}
    judge = getattr(config.model, "overridden", None)
    wrong = judge(before, fields) if judge else None
    if wrong:
        raise UserError(f"[config] {wrong}")
    return config
