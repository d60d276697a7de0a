"""The sample command that a finished run prints, run again."""

from __future__ import annotations

import shlex

from mudd_core.cli import main


def sample_command(output: str) -> list[str] | None:
    """Return the arguments of the printed sample command; None if the run printed none."""
    lines = [line for line in output.splitlines() if line.startswith("sample ")]
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
