"""The program's own help is printed without loading a config, so it appears at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core.base import surroundings
from mudd_core.cli import main_help
from mudd_core.config.tool_arguments import ToolArguments

LOADED = """import sys
from mudd_core.cli import main
sys.argv = ["launch.py", *{words}]
code = main()
print(sorted(name for name in sys.modules if name.startswith("mudd_core.config") or name == "numpy"), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ([], "usage: "),
        (["--help"], "usage: "),
        (["-h"], "usage: "),
        (["help"], "usage: "),
        (["--version"], "mudd_core "),
        (["-V"], "mudd_core "),
    ],
)
def test_the_program_answers_without_a_config(words: list[str], first: str) -> None:
    code = LOADED.format(words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout.startswith(first)


def test_a_wrong_level_is_refused_before_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUDD_MAX_ISA", "abacus")
    code = LOADED.format(words=["--help"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "MUDD_MAX_ISA" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("launch.py", "python3 launch.py"),
        ("../checkout/launch.py", "python3 ../checkout/launch.py"),
        ("/usr/bin/mudd", "mudd"),
        ("notes.py", "python3 -m mudd_core"),
    ],
)
def test_the_help_names_the_command_that_was_typed(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        surroundings, "_CHECKOUT_LAUNCHER", tmp_path / "launch.py"
    )  # as in an installed wheel
    monkeypatch.setattr(sys, "argv", [typed, "--help"])
    assert main_help.main_help().startswith(f"usage: {shown} [command]")
    assert (
        ToolArguments("export", "Type python3 launch.py export.")
        .format_help()
        .startswith(f"usage: {shown} export")
    )
