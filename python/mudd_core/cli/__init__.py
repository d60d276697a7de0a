"""The command line: `launch.py [command] --config=FILE [overrides]`; `main` runs one.

argv reads the arguments, help has their texts, commands has a function for each command; a tool (with arguments of its
own) is a module with main(arguments).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Without arguments the process's own, whose signals it takes."""
    if arguments is None:  # held back while the rest is imported, until the handlers are in
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    from mudd_core.cli.entry import main as run

    return run(arguments)
