"""The command line: `launch.py [command] --config=FILE [overrides]`; `main` runs one.

argv.py parses the arguments, help.py has the help texts, and commands.py has a function for each command. A tool (a
command with its own arguments) is a module with main(arguments).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

# The signals of faults in this process, and the two that cannot be blocked. launch.py has the same list.
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
    """Run one command line and return the exit code.

    Without arguments, run sys.argv and handle the process's signals.
    """
    if arguments is None:  # signals are blocked during imports, until the handlers are installed
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)
    from mudd_core.cli.entry import main as run

    return run(arguments)
