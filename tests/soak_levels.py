"""The long form of the tests of levels: ./run soak levels [cases] [--compiler C++]; a log in bench/results.

1. `cases` random cases (2,000) of every op, drawn by hypothesis: all levels of this CPU give the same bits.
2. The goldens' runs of every family at each level: the committed bits. Their hashes go to bench/results/same_bits.json.
3. Every family at 9 million parameters, sequences of 512 tokens: one hash at AVX2 and at the CPU's own level after 20
   steps; on a CPU whose own level is AVX2 or NEON, at the portable level and at this level after 3 steps.

With --compiler, its modules are built in build/<compiler>: 1 compares them with those of ./run, 2 uses them, and 3 is
left out. The same command continues a log that has no end, leaving out what has been equal; each start writes its
commit.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests", "tests/python", "python", "bench")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]

import build_trees  # noqa: E402
import loss_goldens  # noqa: E402
import same_bits  # noqa: E402
from level_check import check  # noqa: E402
from level_results import CASES  # noqa: E402
from level_workers import Worker, Workers, levels  # noqa: E402
from shapes import commit  # noqa: E402
from soak_log import END, Log  # noqa: E402

COMMITTED = "the committed bits"
MODELS = "models of 9M: equal"


def ops_at_levels(cases: int, tree: str, log: Log) -> bool:
    """Compare the ops that the log does not have yet; False if a level differs."""
    settings.register_profile(
        "soak", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("soak")
    good = True
    others = [Worker(level, f"{level}, {tree}", tree=tree) for level in levels()] if tree else []
    with Workers(others=others) as workers:
        for case in CASES:
            if log.has(f"{case}: {cases} cases, equal"):
                continue
            begin, found = time.monotonic(), "equal"
            try:
                check(workers, case, cases, progress(case, cases))
            except AssertionError as error:
                good, found = False, f"DIFFER: {error}"
            log.say(f"{case}: {cases} cases, {found}, {time.monotonic() - begin:.0f} s")
    return good


def progress(case: str, cases: int) -> Callable[[int], None]:
    """Return a callback that says on standard error, each 30 s, how many cases of an op are done."""
    last = time.monotonic()

    def done(count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 30:
            last = time.monotonic()
            print(f"  {case}: {count} of {cases} cases", file=sys.stderr, flush=True)

    return done


def families_at_levels(tree: str, log: Log) -> bool:
    """Train the goldens' runs and keep their hashes; False if bits differ from the committed ones."""
    if all(log.has(f"families at {level}: {COMMITTED}") for level in loss_goldens.levels()):
        return True
    good = True
    for level, differ in same_bits.measure(tree):
        good &= not differ
        log.say(f"families at {level}: {f'DIFFER: {differ}' if differ else COMMITTED}")
    return good


def models_at_levels(log: Log) -> bool:
    """Compare the weights of whole models; False if they differ."""
    if log.has(MODELS):
        return True
    highest = levels()[-1]
    pair = ["portable", highest, "--steps=3"] if highest in ("avx2", "neon") else ["avx2", "highest"]
    words = ["--programs=ours", "--seq-len=512", "--batch=4", "--levels", *pair]
    command = [sys.executable, str(ROOT / "bench" / "bench_levels.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.say(done.stdout.strip() or done.stderr.strip())
    if done.returncode == 0:
        log.say(MODELS)
    return done.returncode == 0


def head(tree: str) -> str:
    """Return the first line of a log: what the soak compares."""
    names = [build_trees.compiler_of(build_trees.BUILD / name) for name in (build_trees.OWN, tree) if name]
    return f"soak levels: {same_bits.cpu()}, levels {', '.join(levels())}, {', '.join(names)}"


def main() -> int:
    """Run all parts; 0 if every level agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", type=int, nargs="?", default=2000)
    parser.add_argument("--compiler", default="", help="another compiler, as clang++")
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / folder) for folder in FOLDERS[:-1])
    os.environ["OMP_NUM_THREADS"] = "1"
    begin, today = time.monotonic(), datetime.datetime.now(datetime.UTC).date()
    tree = build_trees.build(asked.compiler) if asked.compiler else ""
    name = f"soak_levels_{tree}_{today}.log" if tree else f"soak_levels_{today}.log"
    log = Log(asked.log or ROOT / "bench" / "results" / name, head(tree))
    log.say(f"commit {commit()}")
    good = ops_at_levels(asked.cases, tree, log)
    good &= families_at_levels(tree, log)
    if not tree:
        good &= models_at_levels(log)
    log.say(f"{END}{time.monotonic() - begin:.0f} s; {'all levels agree' if good else 'LEVELS DIFFER'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
