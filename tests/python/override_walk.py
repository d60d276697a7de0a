"""Print the modules whose code runs while a command line becomes a config, and their number.

    python tests/python/override_walk.py --config=tiny.py train.steps=5

Recording ends when the command would start: the config is read, changed and checked, and nothing trains. base/ is left
out, because its functions mean the same everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from run_modules import RunModules, run_modules

PACKAGES = tuple(f"mudd_core.{name}" for name in ("cli", "config", "data", "interop", "programs", "run"))


def walk_of(words: Sequence[str]) -> RunModules:
    """Read these arguments as the command line does, and return the modules that run."""
    from mudd_core.cli import commands, main
    from mudd_core.cli.request import Request
    from mudd_core.run.ranks.ranks import Ranks

    def begin(request: Request, ranks: Ranks | None = None) -> int:
        assert request.config is not None
        print(f"train.steps = {request.config.train.steps}")
        return 0

    commands.run = begin  # type: ignore[assignment]
    with run_modules(PACKAGES) as found:
        main(words)
    return found


if __name__ == "__main__":
    print("\n".join(walk_of(sys.argv[1:]).lines()))
