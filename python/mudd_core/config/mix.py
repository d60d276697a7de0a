"""The grammar of data.mix, data.mix_phases and data.sources: weights and options of named sources as strings.

    data.mix         web:0.7,code:0.2,own:1/10
    data.mix_phases  2000:web:0.5,code:0.5;8000:own:1
    data.sources     web.path=a/web code.path='b c'

These are NAME:WEIGHT, STEP:WEIGHTS and NAME.OPTION=VALUE, quoted as in a shell. In a config file or a dict, each of
them may be a mapping, and `mapping_text` returns its string.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

MIX, PHASES, SOURCES = "data.mix", "data.mix_phases", "data.sources"
# Fields of `data` that a source may set for itself.
OPTIONS = (
    "path",
    "format",
    "dataset",
    "dataset_config",
    "split",
    "column",
    "document",
    "eval_path",
    "eval_match",
    "epochs",
    "shuffle",
    "buffer",
    "workers",
    "template",
    "loss_on",
    "too_long",
    "bad_records",
    "bad_examples",
)
# The options that a source does not take from the section `data`.
OWN = ("path", "dataset", "dataset_config", "eval_path", "eval_match", "epochs")
LARGEST_SUM = 2**31 - 1  # of integer weights (cpp/mudd/data/mix_schedule.h)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WEIGHT = re.compile(r"\d{1,18}(\.\d{0,18})?([eE][+-]?\d{1,2})?|\.\d{1,18}|\d{1,18}/\d{1,18}")

Item = TypeVar("Item")  # of a mapping, whose values become strings
Weights = Mapping[str, Fraction]


@dataclass(frozen=True)
class Phase:
    """The weights of the batches after `step`; sources without a weight are absent."""

    step: int
    weights: Weights


def parse_weights(text: str) -> dict[str, Fraction]:
    """Return the weights of data.mix by name, in the order of the string; raise ValueError if it is malformed."""
    found: dict[str, Fraction] = {}
    for part in text.split(","):
        name, colon, weight = part.strip().partition(":")
        name = name.strip()
        if not colon:
            raise ValueError(f"expected NAME:WEIGHT, such as web:0.7,code:0.3, got {part.strip()!r}")
        require_name(name)
        if name in found:
            raise ValueError(f"expected one weight for each source, got two for {name}")
        found[name] = _weight(name, weight.strip())
    if not any(found.values()):
        raise ValueError(f"expected at least one weight above 0, got {text!r}")
    return found


def require_name(name: str) -> None:
    """Raise ValueError unless `name` can be the name of a source."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits, '_' and '-', got {name!r}")


def _weight(name: str, text: str) -> Fraction:
    if not _WEIGHT.fullmatch(text):
        raise ValueError(
            f"expected a finite weight of at least 0 for {name}, such as 0.7 or 1/3, got {text!r}"
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"expected a denominator above 0 for {name}, got {text!r}") from None


def parse_phases(text: str) -> list[Phase]:
    """Return the phases of data.mix_phases; raise ValueError if the string is malformed or steps do not ascend."""
    found: list[Phase] = []
    for part in text.split(";") if text.strip() else []:
        step, _, weights = part.strip().partition(":")
        if not re.fullmatch(r"\d{1,10}", step.strip()):
            raise ValueError(
                f"expected STEP:NAME:WEIGHT,..., such as 2000:web:0.5,code:0.5, got {part.strip()!r}"
            )
        last = found[-1].step if found else 0
        if int(step) <= last:
            raise ValueError(f"expected ascending steps above 0, got {int(step)} after {last}")
        found.append(Phase(int(step), parse_weights(weights)))
    return found


def integer_weights(names: Sequence[str], weights: Weights) -> list[int]:
    """Return integers in the ratio of the weights, without a common factor; 0 for an absent name.

    Raise ValueError if their sum is above LARGEST_SUM.
    """
    given = [weights.get(name, Fraction(0)) for name in names]
    scale = math.lcm(*(weight.denominator for weight in given))
    whole = [int(weight * scale) for weight in given]
    common = math.gcd(*whole)
    whole = [weight // common for weight in whole]
    if sum(whole) > LARGEST_SUM:
        raise ValueError(
            f"expected weights that scale to integers with a sum of at most {LARGEST_SUM:,}, got {sum(whole):,}; write "
            "them with fewer digits"
        )
    return whole


def parse_sources(text: str) -> dict[str, dict[str, str]]:
    """Return the options of data.sources by source; raise ValueError if the string is malformed."""
    found: dict[str, dict[str, str]] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"expected NAME.OPTION=VALUE with blanks between them: {error}") from None
    for word in words:
        place, equals, value = word.partition("=")
        name, dot, option = place.partition(".")
        if not (equals and dot):
            raise ValueError(f"expected NAME.OPTION=VALUE, such as web.path=data/web, got {word!r}")
        require_name(name)
        if option not in OPTIONS:
            near = difflib.get_close_matches(option, OPTIONS, 1)
            hint = f"did you mean {near[0]}?" if near else f"options of a source are {', '.join(OPTIONS)}"
            raise ValueError(
                f"'{option}' is no option of a source, set data.{option} for all of them"
                if option in _SHARED
                else f"unknown option '{option}' of the source {name}; {hint}"
            )
        found.setdefault(name, {})[option] = value
    return found


_SHARED = (
    "tokenizer",
    "vocab_size",
    "pipeline",
    "cache",
    "cache_dir",
    "seed",
    "retries",
    "files_per_group",
    "held_batch",
    "zero_loss",
    "repeat_batch",
)


def sources_text(sources: Mapping[str, Mapping[str, str]]) -> str:
    """Return the string of data.sources: sources by name, options in the order of OPTIONS."""
    words = [
        f"{name}.{option}={options[option]}"
        for name, options in sorted(sources.items())
        for option in OPTIONS
        if option in options
    ]
    return shlex.join(words)


def option_of(path: str) -> tuple[str, str] | None:
    """Return source and option of `data.sources.NAME.OPTION`; None for other paths."""
    name, _, option = path.removeprefix(f"{SOURCES}.").partition(".")
    return (name, option) if path.startswith(f"{SOURCES}.") and option else None


def with_option(text: str, name: str, option: str, value: str) -> str:
    """Return the string of data.sources with one option set; raise ValueError as parse_sources does."""
    word = shlex.quote(f"{name}.{option}={value}")
    parse_sources(word)  # raises the error of an unknown option
    found = parse_sources(text)
    found.setdefault(name, {})[option] = value
    return sources_text(found)


def settled(text: str) -> str:
    """Return data.sources in the order of sources_text; a malformed string unchanged."""
    try:
        return sources_text(parse_sources(text))
    except ValueError:
        return text


def mapping_text(path: str, value: Mapping[str, Item]) -> str:
    """Return the string of a mapping that data.mix, data.mix_phases or data.sources has in Python or JSON."""
    if path == MIX:
        return _weights_text(value)
    if path == PHASES:
        return ";".join(f"{step}:{_weights_text(weights)}" for step, weights in value.items())
    words = [
        f"{name}.{option}={option_text(given)}"
        for name, options in value.items()
        for option, given in (options.items() if isinstance(options, Mapping) else ())
    ]
    return shlex.join(words)


def _weights_text(weights: Item) -> str:
    if not isinstance(weights, Mapping):
        return str(weights)
    return ",".join(f"{name}:{_weight_text(weight)}" for name, weight in weights.items())


def _weight_text(weight: Item) -> str:
    """Return a weight as text: a float that is not a short decimal becomes the nearest simple fraction equal to it."""
    if isinstance(weight, float) and math.isfinite(weight) and len(repr(weight)) > 12:
        near = Fraction(weight).limit_denominator(10**6)
        return str(near) if float(near) == weight else repr(weight)
    return str(weight)


def option_text(value: Item) -> str:
    """Return the value of an option as text, as in data.sources."""
    return str(value).lower() if isinstance(value, bool) else str(value)
