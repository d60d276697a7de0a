"""Integer and float options of the tools: every error names the option, the expected value and the given one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from launched import arguments_of, launched
from mudd_core.base.python_arguments import in_python
from mudd_core.cli import main
from mudd_core.config.tool_arguments import fraction, positive_number, whole_number
from places import ROOT

COUNTS = {
    ("profile", "--config=tiny.py", "--steps"): "of at least 1",
    ("profile", "--config=tiny.py", "--warmup"): "of at least 1",
    ("scale", "--config=tiny.py", "--nodes"): "from 1 to",
    ("scale", "--config=tiny.py", "--ranks-per-node"): "from 1 to",
    ("commbench", "--ranks"): "from 1 to 1024",
    ("commbench", "--largest"): "from 64 to",
    ("export", "--to=w", "--shard-mb"): "from 0 to",
    ("export", "--to=w", "--step"): "of at least 0",
    ("weights", "--windows"): "of at least 1",
    ("data", "convert", "--from=a", "--to=b", "--shards"): "of at least 0",
    ("data", "inspect", "a", "--first"): "of at least 0",
    ("data", "show", "--config=tiny.py", "--step"): "from 1 to",
    ("mup", "check", "--steps"): "of at least 0",
    ("mup", "transfer", "--step"): "of at least 1",
    ("preprocess", "--num-shards"): "from 1 to 99999",
    ("grow", "--config=tokenformer/tiny.py", "--slot-number"): "of at least 1",
}


@pytest.mark.parametrize("command", COUNTS, ids=lambda command: " ".join((command[0], command[-1])))
@pytest.mark.parametrize("text", ["-1", "1.5", "nan", "inf", "ten", "", "1e400", "9" * 5000])
def test_a_count_names_its_option_and_what_it_expects(
    command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command[:-1], f"{command[-1]}={text}"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    told, _, way_out = told.rpartition("; ")
    assert way_out.endswith("--help shows the options")
    shown = text if len(text) <= 60 else "9" * 60 + "..."
    assert f"] {command[-1]}: expected a whole number {COUNTS[command]}" in told
    assert told.endswith(f"got '{shown}'")


@pytest.mark.parametrize("option", ["--step-seconds", "--flops"])
@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast"])
def test_a_number_names_its_option_and_what_it_expects(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", "--config=tiny.py", f"{option}={text}"]) == 2
    assert f"[scale] {option}: expected a number above 0, got '{text}'" in capsys.readouterr().err


def test_what_the_types_take() -> None:
    assert [whole_number(1)(text) for text in ("1", "1e3", "1_000", " 7 ")] == [1, 1000, 1000, 7]
    assert whole_number()("-3") == -3 and whole_number(high=5)("5") == 5
    assert positive_number("1e-3") == 1e-3 and fraction("0") == 0.0 and fraction("0.5") == 0.5
    for text in ("1", "-0.1", "nan"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"from 0 to below 1, got '{text}'"):
            fraction(text)
    with pytest.raises(argparse.ArgumentTypeError, match="of at most 5, got '6'"):
        whole_number(high=5)("6")


def test_a_bare_config_is_named_as_the_config(tmp_path: Path) -> None:
    done = launched(tmp_path, "sweep", "tiny.py", "optim.lr=1e-3,3e-3", "--plan")
    told, _, line = done.stderr.rstrip("\n").partition("; type: ")
    assert done.returncode == 2 and told == "error: [sweep] --config is missing"
    assert line.endswith(" sweep --config=tiny.py optim.lr=1e-3,3e-3 --plan")
    assert launched(tmp_path, *arguments_of(line)).returncode == 0


def test_an_error_outside_the_checkout_names_the_program_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, shown in (
        ("/usr/local/bin/mudd", "mudd"),
        (str(ROOT / "launch.py"), str(ROOT / "launch.py")),
        ("launch.py", "python3 launch.py"),
    ):
        monkeypatch.setattr(sys, "argv", [typed])
        for words in (
            ("teach", "--top=0"),
            ("slurm", "--nodes=0"),
            ("average", "--last=0"),
            ("evaluate", "f1"),
        ):
            assert main(words) == 2
            told = capsys.readouterr().err.rstrip()
            assert told.endswith(f"; {shown} {words[0]} --help shows the options")
            assert not in_python(told, {}).endswith("options")
