#!/usr/bin/env python3
"""The entry point of a checkout, as in `./launch.py --config=small.py`.

The command line is in python/mudd_core/cli/.
"""

from __future__ import annotations

import os
import signal
import sys

# The signals of faults in this process, and the two that cannot be blocked. mudd_core.cli.NOT_HELD has the same list.
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
    """Run the command line. If this Python lacks mudd_core, run the command again with the checkout's Python."""
    # Block signals until the command line has installed its handlers: an early request to stop must not kill the
    # process.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)
    try:
        from mudd_core.cli import main as run
    except ImportError as error:
        python = os.path.join(os.path.dirname(os.path.realpath(__file__)), ".venv", "bin", "python")
        if os.path.isfile(python) and "MUDD_LAUNCHED" not in os.environ:
            os.environ["MUDD_LAUNCHED"] = "1"
            os.execv(python, [python, *sys.argv])
        print(f"launch.py: mudd_core cannot be imported here ({error}).", file=sys.stderr)
        print("Set it up with: ./run setup (./run train also trains the first model)", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
