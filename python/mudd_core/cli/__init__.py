"""The command line: `launch.py [command] --config=FILE [overrides]`; `main` runs one.

argv parses the arguments, help has their texts, commands has a function for each command. A tool (a command with its
own arguments) is a module with main(arguments).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

# Faults of the process itself, and the two signals that cannot be blocked.
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
    """Run one command line; return the exit code. Without arguments, run that of the process and handle its signals."""
    if arguments is None:  # blocked during imports, until the handlers are installed
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)
    from mudd_core.cli.entry import main as run

    return run(arguments)
