"""Compare the ops on 64-bit ARM, under qemu-user, with x86-64, bit for bit, in random cases:

    ./run wheel --arch=aarch64 && .venv/bin/python tests/aarch64.py [cases] [case...]

The first command makes build/wheel/aarch64: a root of Debian's arm64 packages, NumPy, and the modules for ARM.
tests/aarch64_suites.py compares the suites of CTest. ARM runs under qemu, so this shows nothing about its speed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/python", "python")]

from level_results import CASES  # noqa: E402
from level_workers import Worker, Workers, compared  # noqa: E402

SUFFIX = "cpython-311-aarch64-linux-gnu.so"


def package(folder: Path) -> Path:
    """Return a folder with the Python files of this checkout and the ARM core."""
    place = folder / "package"
    shutil.rmtree(place, ignore_errors=True)
    files = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "mudd_core", place / "mudd_core", ignore=files)
    shutil.copy(folder / "build" / f"_core.{SUFFIX}", place / "mudd_core")
    return place


def same_cases(folder: Path, count: int, cases: list[str], level: str) -> int:
    """Print the cases that differ; return their number."""
    root = folder / "root"
    python = ("qemu-aarch64", "-L", str(root), str(root / "usr" / "bin" / "python3.11"))
    arm = Worker(level, "aarch64", python, f"{package(folder)}:{folder / 'site'}")
    wrong = 0
    with Workers(others=[arm]) as workers:
        for case in cases or CASES:
            bad, lines = compared(workers, case, count, random.Random(case))
            wrong += bad
            print(f"{case}: {count - bad} of {count} cases equal", flush=True)
            for line, times in lines.most_common(6):
                print(f"    {times:5} {line}")
    return wrong


def main() -> int:
    """Compare; return 1 if something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "wheel" / "aarch64")
    parser.add_argument("--level", choices=("neon", "portable"), default="neon", help="of ARM (neon)")
    parser.add_argument("words", nargs="*", help="cases (20), names")
    asked = parser.parse_intermixed_args()
    if not (asked.folder / "build" / f"_core.{SUFFIX}").exists():
        parser.error(f"{asked.folder} has no module for ARM; type: ./run wheel --arch=aarch64")
    names = [word for word in asked.words if not word.isdecimal()]
    if unknown := set(names) - set(CASES):
        parser.error(
            f"expected cases as rms_norm, got {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}"
        )
    count = next((int(word) for word in asked.words if word.isdecimal()), 20)
    return min(1, same_cases(asked.folder, count, names, asked.level))


if __name__ == "__main__":
    sys.exit(main())
