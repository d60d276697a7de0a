"""config/arguments.py: the only place that parses an argument, once; a value may be the next argument."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mudd_core
from mudd_core.config.arguments import Argument, Arguments, argument, with_values

PACKAGE = Path(mudd_core.__file__).parent


@pytest.mark.parametrize(
    ("raw", "mark", "key", "value", "name"),
    [
        ("--config.train.steps=5", "--", "config.train.steps", "5", "train.steps"),
        ("--train-steps", "--", "train-steps", None, "train-steps"),
        ("-h", "-", "h", None, "h"),
        ("++a=b=c", "++", "a", "b=c", "a"),
        ("+a=", "+", "a", "", "a"),
        ("~a", "~", "a", None, "a"),
        ("=x", "", "", "x", ""),
        ("", "", "", None, ""),
        ("a--b=-1", "", "a--b", "-1", "a--b"),
    ],
)
def test_an_argument_is_taken_apart(raw: str, mark: str, key: str, value: str | None, name: str) -> None:
    item = argument(raw)
    assert item == Argument(raw, mark, key, value) and item.name == name
    assert item.switch == (mark == "--" and value is None)
    assert raw == item.option + ("" if value is None else f"={value}")


def test_a_reader_takes_the_value_behind() -> None:
    arguments = Arguments(["--a", "1", "--b", "--c", "x=2", "--d", "--e"])
    found = {item.raw: arguments.plain_value() for item in arguments}
    assert found == {"--a": "1", "--b": None, "--c": None, "x=2": None, "--d": None, "--e": None}
    arguments = Arguments(["--a", "--b"])
    assert [(item.raw, arguments.value()) for item in arguments] == [("--a", "--b")]
    assert arguments.value() is None and arguments.next() is None


def test_a_reader_passes_an_argument_on_as_typed() -> None:
    arguments = Arguments(["--a", "1", "--b=2", "3", "--c", "--d"])
    assert [arguments.typed(item) for item in arguments] == [["--a", "1"], ["--b=2"], ["3"], ["--c"], ["--d"]]


def test_the_next_argument_may_be_seen_before_it_is_taken() -> None:
    arguments = Arguments(["a", "b"])
    assert arguments.next() == argument("a") == arguments.next()
    assert [item.raw for item in arguments] == ["a", "b"] and arguments.next() is None


def test_every_argument_is_seen_with_the_value_that_it_may_have() -> None:
    seen = [(item.raw, value) for item, value in with_values(["--mode", "train", "a=1", "--b"])]
    assert seen == [("--mode", "train"), ("train", "a=1"), ("a=1", "1"), ("--b", "")]


def test_no_other_module_takes_arguments_apart() -> None:
    """List the modules that split other strings at an equals sign: optimizer groups, storage.map, data.sources."""
    own = {"config/arguments.py", "config/optim.py", "config/mix.py", "base/storage.py"}
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"""partition\(["']=["']\)""", path.read_text(encoding="utf-8"))
    }
    assert found == own
