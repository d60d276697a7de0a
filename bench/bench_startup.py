"""Measure the seconds of the import, and from the command to the first training step, each in separate processes.

    python bench/bench_startup.py --rounds 3

`import`: inside a fresh process, `import mudd_core; mudd_core.isa()`. `first step`: from the start of the command
`launch.py --config=small.py` to the call of its engine's first step, on a warm token cache, which an unmeasured run
creates. Each run ends there; the child below is launch.py with that one call replaced.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_IMPORT = (
    "import sys, time; sys.path.insert(0, sys.argv[1]); t = time.perf_counter(); "
    "import mudd_core; mudd_core.isa(); print(time.perf_counter() - t)"
)


def import_seconds() -> float:
    """Return the seconds of the import in a fresh interpreter."""
    argv = [sys.executable, "-c", _IMPORT, str(HERE.parent / "python")]
    return float(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout)


_LAUNCH = """
import os, runpy, sys, time
root, config, folder, name = sys.argv[1:5]
sys.path.insert(0, root + "/python")
from mudd_core.engine import engine

def stop(*args, **kwargs):
    print("first step", time.time(), flush=True)
    os._exit(0)

engine.Engine.train_step = stop
sys.argv = ["launch.py", f"--config={config}", f"--workdir={folder}/{name}", f"data.cache_dir={folder}/cache"]
runpy.run_path(root + "/launch.py", run_name="__main__")
"""


def first_step_seconds(config: str, folder: Path, name: str) -> float:
    """Return the seconds from the start of a process to its first step; the token cache is in `folder`."""
    argv = [sys.executable, "-c", _LAUNCH, str(HERE.parent), config, str(folder), name]
    began = time.time()
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.rpartition("first step")[2]) - began


def measure(rounds: int, config: str) -> dict[str, Any]:
    """Return medians of `rounds` runs, after one run that is not measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = [first_step_seconds(config, folder, f"run{n}") for n in range(rounds + 1)][1:]
    imports = [import_seconds() for _ in range(rounds + 1)][1:]
    return {"import_seconds": statistics.median(imports), "first_step_seconds": statistics.median(first)}


def main() -> int:
    """Measure and print."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--config", default="small.py")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    a = p.parse_args()
    row = measure(a.rounds, a.config)
    if a.json:
        print(json.dumps(row))
        return 0
    print(
        f"import and isa {row['import_seconds']:.3f} s, first step of {a.config} {row['first_step_seconds']:.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
