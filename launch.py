#!/usr/bin/env python3
"""The entry point of a checkout: `./launch.py --config=small.py`. All else is in python/mudd_core/cli/."""

from __future__ import annotations

import os
import signal
import sys

# Faults of the process itself, and the two signals that nothing blocks (as mudd_core.cli.NOT_HELD).
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


def main() -> int:
    """Run the command line; under a Python without mudd_core, once more with the checkout's own."""
    # Blocked until the command line has its handlers: a request to stop in between must not kill the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)
    try:
        from mudd_core.cli import main as run
    except ImportError as error:
        python = os.path.join(os.path.dirname(os.path.realpath(__file__)), ".venv", "bin", "python")
        if os.path.isfile(python) and "MUDD_LAUNCHED" not in os.environ:
            os.environ["MUDD_LAUNCHED"] = "1"
            os.execv(python, [python, *sys.argv])
        print(f"launch.py: mudd_core cannot be imported here ({error}).", file=sys.stderr)
        print("Set it up and train with: ./run train", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
