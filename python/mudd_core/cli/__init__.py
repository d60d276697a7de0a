"""The command line: `launch.py [command] --config=FILE [overrides]`; `main` runs one.

argv reads the arguments, help has their texts, commands has a function for each command; a tool (with arguments of its
own) is a module with main(arguments).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

# Faults of the process itself, and the two signals that nothing blocks.
NOT_HELD = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Without arguments the process's own, whose signals it takes."""
    if arguments is None:  # blocked while the rest is imported, until the handlers are installed
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)
    from mudd_core.cli.entry import main as run

    return run(arguments)
