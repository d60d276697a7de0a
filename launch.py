"""The door: `python launch.py --config=small.py`. All else is in python/mudd_core/cli/."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Run the command line; under a Python without mudd_core, once more with the checkout's own."""
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
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
