"""The door: `python launch.py --config=small.py`. All else is in python/mudd_core/cli/."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> int:
    """Run the command line; under a Python without mudd_core, once more with the checkout's own."""
    # Held back until the command line has its handlers: a request to stop in between must not kill the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
    try:
        from mudd_core.cli import main as run
    except ImportError as error:
        python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
        if python.is_file() and "MUDD_LAUNCHED" not in os.environ:
            os.environ["MUDD_LAUNCHED"] = "1"
            os.execv(python, [str(python), *sys.argv])
        print(f"launch.py: mudd_core cannot be imported here ({error}).", file=sys.stderr)
        print("Set it up and train with: ./run train", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
