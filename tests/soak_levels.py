"""The long form of the tests of levels: ./run soak levels [cases]; a log in bench/results.

1. `cases` random cases (2,000) of every op, drawn by hypothesis: all levels of this CPU give the same bits.
2. Every family at 9 million parameters, sequences of 512 tokens, 20 steps: one hash at AVX2 and at the CPU's own level.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests", "tests/python", "python")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[: len(FOLDERS)])

from level_check import check  # noqa: E402
from level_results import CASES  # noqa: E402
from level_workers import Workers, levels  # noqa: E402
from mudd_core import _core  # noqa: E402
from soak_log import Log  # noqa: E402


def ops_at_levels(cases: int, log: Log) -> bool:
    """Compare the ops; False if a level differs."""
    settings.register_profile(
        "soak", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("soak")
    good = True
    with Workers() as workers:
        for case in CASES:
            begin, found = time.monotonic(), "equal"
            try:
                check(workers, case, cases)
            except AssertionError as error:
                good, found = False, f"DIFFER: {error}"
            log.say(f"{case}: {cases} cases, {found}, {time.monotonic() - begin:.0f} s")
    return good


def models_at_levels(log: Log) -> bool:
    """Compare the weights of whole models; False if they differ."""
    words = ["--programs=ours", "--seq-len=512", "--batch=4", "--levels", "avx2", "highest"]
    command = [sys.executable, str(ROOT / "bench" / "bench_levels.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.say(done.stdout.strip() or done.stderr.strip())
    return done.returncode == 0


def main() -> int:
    """Run both parts; 0 if every level agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", type=int, nargs="?", default=2000)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    begin, today = time.monotonic(), datetime.datetime.now(datetime.UTC).date()
    log = Log(asked.log or ROOT / "bench" / "results" / f"soak_levels_{today}.log")
    log.say(f"soak levels: {today}, {_core.cpu_name()}, levels {', '.join(levels())}")
    good = ops_at_levels(asked.cases, log)
    good &= models_at_levels(log)
    log.say(f"{time.monotonic() - begin:.0f} s; {'all levels agree' if good else 'LEVELS DIFFER'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
