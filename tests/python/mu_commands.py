"""Commands in mu-Transformer's grammar, resolved."""

from __future__ import annotations

from mudd_core.programs.detect import resolve
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved

SMALL = "mu_transformer/configs/small.py"


def resolved(*words: str, config: str = SMALL, command: str = "", **options: str) -> Resolved:
    found = resolve(
        CommandLine(command, config, words, {f"--{name}": value for name, value in options.items()}, {})
    )
    assert found is not None and found.grammar == "mu_transformer"
    return found
