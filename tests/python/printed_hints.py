"""The sample command that a finished run prints, run again."""

from __future__ import annotations

import re
import shlex

from mudd_core.cli import main


def commands(output: str, name: str) -> list[str]:
    """Return the printed lines that are a command of this name."""
    return [line for line in output.splitlines() if re.match(rf"  \S.* {name} ", line)]


def sample_command(output: str) -> list[str] | None:
    """Return the arguments of the printed sample command; None if the run printed none."""
    lines = commands(output, "sample")
    assert len(lines) <= 1, lines
    if not lines:
        return None
    words = shlex.split(lines[0])
    return words[words.index("sample", 1) :]


def require_sample_command_works(output: str) -> None:
    """Require that the run printed a sample command, and that it exits with code 0."""
    words = sample_command(output)
    assert words is not None, output
    assert main([*words, "--max-tokens=2"]) == 0, words
