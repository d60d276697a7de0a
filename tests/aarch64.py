"""Compare the ops on 64-bit ARM with x86-64, bit for bit, in random cases:

    .venv/bin/python tests/aarch64.py FOLDER [cases] [case...]

These commands create FOLDER, with Debian's packages g++-aarch64-linux-gnu, qemu-user and mmdebstrap, and pip:

    mmdebstrap --variant=extract --architectures=arm64 --include=python3,libpython3.11-dev,libgomp1,libstdc++6 \\
      bookworm FOLDER/root
    pip download numpy --no-deps --platform manylinux_2_28_aarch64 --python-version 3.11 --only-binary=:all: -d FOLDER
    (mkdir FOLDER/site && cd FOLDER/site && python3 -m zipfile -e ../numpy*.whl .)
    cmake -G Ninja -B FOLDER/build -DCMAKE_TOOLCHAIN_FILE=cpp/cmake/aarch64.cmake -DMUDD_MPI=OFF \\
      -DMUDD_STATIC_HDF5=FOLDER -DPython_EXECUTABLE=$PWD/.venv/bin/python \\
      -DPython_INCLUDE_DIR=FOLDER/root/usr/include/python3.11 -DCMAKE_CXX_FLAGS="-idirafter FOLDER/root/usr/include" \\
      -DPython_NumPy_INCLUDE_DIR=FOLDER/site/numpy/_core/include
    ninja -C FOLDER/build _core

tests/aarch64_suites.py compares the suites of CTest. ARM runs under qemu, so this shows nothing about speed.
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
    shutil.copy(next((folder / "build").glob("_core.*.so")), place / "mudd_core" / f"_core.{SUFFIX}")
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
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", choices=("neon", "portable"), default="neon", help="of ARM (neon)")
    parser.add_argument("words", nargs="*", help="cases (20), names")
    asked = parser.parse_intermixed_args()
    names = [word for word in asked.words if not word.isdecimal()]
    count = next((int(word) for word in asked.words if word.isdecimal()), 20)
    return min(1, same_cases(asked.folder, count, names, asked.level))


if __name__ == "__main__":
    sys.exit(main())
