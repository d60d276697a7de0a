"""The command line is parsed once, before any config is read."""

from __future__ import annotations

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli.argv import Invocation, parse


@pytest.mark.parametrize(
    ("typed", "command", "tool", "trains", "on_ranks", "starts_ranks"),
    [
        ("--config=tiny.py", "train", None, True, True, False),
        ("train --config=tiny.py --plan --ranks=4", "train", None, False, False, False),
        ("--ranks 2 --config=tiny.py", "train", None, True, True, True),
        ("eval runs/a", "validate", None, False, True, False),
        ("--mode=generate --config=tiny.py --hosts=a,b", "sample", None, False, True, True),
        ("data --config=tiny.py", "data", None, False, False, False),
        ("data show --config=tiny.py", "data show", "data show", False, False, False),
        ("tune --base=b --ranks=2", "tune", "tune", True, False, False),
        ("bakeoff a.py b.py --ranks=2", "bakeoff", "bakeoff", True, True, True),
        ("commbench --ranks=2", "commbench", "commbench", False, False, False),
        ("help tune", "tune", "tune", False, False, False),
        ("clm model=gpt2", "train", None, True, True, False),
        ("", "train", None, False, False, False),
    ],
)
def test_a_command_line_is_taken_apart(
    typed: str, command: str, tool: str | None, trains: bool, on_ranks: bool, starts_ranks: bool
) -> None:
    asked = parse(typed.split())
    assert (asked.command, asked.tool) == (command, tool)
    assert (asked.trains, asked.runs_on_ranks, asked.starts_ranks) == (trains, on_ranks, starts_ranks)


def test_a_tool_gets_its_own_arguments() -> None:
    def tool(*words: str) -> tuple[str | None, tuple[str, ...]]:
        asked = parse(words)
        return asked.tool, asked.tool_words

    assert tool("--mode=grow", "runs/a", "--preserve") == ("grow", ("runs/a", "--preserve"))
    assert tool("--workdir=w", "--mode", "import", "folder") == ("import", ("--workdir=w", "folder"))
    assert tool("data", "convert", "a", "b") == ("data convert", ("a", "b"))
    assert tool("help", "compare") == ("compare", ("--help",))
    assert tool("--mode=train", "--config=tiny.py") == (None, ("--mode=train", "--config=tiny.py"))


def test_options_and_overrides_are_told_apart() -> None:
    asked = parse(
        ["generate", "--config", "tiny.py", "--stop=a", "--stop", "b", "--top-k", "3", "sample.seed=4"]
    )
    assert (asked.first, asked.named) == ("generate", "sample")
    assert asked.given.options == {"--config": "tiny.py", "--stop": "b"}
    assert asked.given.words == ["--top-k", "3", "sample.seed=4"]
    assert asked.given.stops == ["a", "b"]
    assert asked.given is asked.given  # parsed only once


def test_a_field_that_is_an_option_of_another_command_stays_an_override() -> None:
    assert parse(["--config=tiny.py", "--tokenizer", "bytes"]).given.words == ["--tokenizer", "bytes"]
    assert parse(["sample", "runs/a", "--tokenizer", "bytes"]).given.options == {"--tokenizer": "bytes"}


def test_the_options_of_a_job_are_told_apart() -> None:
    job = parse(["sample", "--ranks", "2", "runs/a", "--hosts=a,b"]).job
    assert job.options == {"--ranks": "2", "--hosts": "a,b"}
    assert job.words == ["sample", "runs/a"]


def test_parsing_refuses_nothing_and_a_reader_what_it_needs() -> None:
    asked = parse(["sample", "--prompt"])
    assert isinstance(asked, Invocation)
    with pytest.raises(UserError, match="--prompt: expected TEXT after it"):
        _ = asked.given
    with pytest.raises(UserError, match="--ranks: expected a value after it"):
        _ = parse(["train", "--ranks"]).job
