"""Compare the ops on 64-bit ARM with x86-64, bit for bit, in random cases or in the suites of CTest:

    .venv/bin/python tests/aarch64.py FOLDER [cases] [case...]
    .venv/bin/python tests/aarch64.py FOLDER --suites [suite...]

A suite prints hashes of all results that it compares, by kernel row. The hashes of ARM's rows at one level (neon, or
--level=portable) must equal the hashes of x86-64's rows of the same tile (avx2, or portable): some suites choose their
shapes by the tile. These commands create FOLDER, with Debian's packages g++-aarch64-linux-gnu, qemu-user and
mmdebstrap, and pip:

    mmdebstrap --variant=extract --architectures=arm64 --include=python3,libpython3.11-dev,libgomp1,libstdc++6 \\
      bookworm FOLDER/root
    pip download numpy --no-deps --platform manylinux_2_28_aarch64 --python-version 3.11 --only-binary=:all: -d FOLDER
    (mkdir FOLDER/site && cd FOLDER/site && python3 -m zipfile -e ../numpy*.whl .)
    cmake -G Ninja -B FOLDER/build -DCMAKE_TOOLCHAIN_FILE=cpp/cmake/aarch64.cmake -DMUDD_MPI=OFF \\
      -DMUDD_STATIC_HDF5=FOLDER -DPython_EXECUTABLE=$PWD/.venv/bin/python \\
      -DPython_INCLUDE_DIR=FOLDER/root/usr/include/python3.11 -DCMAKE_CXX_FLAGS="-idirafter FOLDER/root/usr/include" \\
      -DPython_NumPy_INCLUDE_DIR=FOLDER/site/numpy/_core/include -DMUDD_TESTS=ON -DDOCTEST_INCLUDE=FOLDER/include
    (mkdir FOLDER/include && cp -r /usr/include/doctest FOLDER/include)
    ninja -C FOLDER/build _core

Suites are built on demand, in build/run too. For suites alone FOLDER/root may be a link to /usr/aarch64-linux-gnu, and
the build tree needs no Python (-DMUDD_PYTHON=OFF). ARM runs under qemu, so this shows nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/python", "python")]

from level_results import CASES  # noqa: E402
from level_workers import Worker, Workers, compared  # noqa: E402

SAME_TILE = {"neon": "avx2", "portable": "portable"}  # levels of x86-64
SUFFIX = "cpython-311-aarch64-linux-gnu.so"


def package(folder: Path) -> Path:
    """Return a folder with the Python files of this checkout and the ARM core."""
    place = folder / "package"
    shutil.rmtree(place, ignore_errors=True)
    files = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "mudd_core", place / "mudd_core", ignore=files)
    shutil.copy(next((folder / "build").glob("_core.*.so")), place / "mudd_core" / f"_core.{SUFFIX}")
    return place


def op_suites() -> list[str]:
    """Return the test programs that print hashes of fp32 results: all except the benchmarks."""
    marks = re.compile(r"\A// levels|check_levels\(|for_each_row\(")
    files = sorted((ROOT / "tests" / "cpp").glob("*_test.cc"))
    names = [file.stem for file in files if marks.search(file.read_text(encoding="utf-8"))]
    return [name for name in names if "bf16" not in name and name != "peak_test"]


def outputs(command: list[str], level: str) -> tuple[int, list[str]]:
    """Run a suite at a level. Return its exit code and the hash lines of the level's kernels or of no kernel."""
    environment = {**os.environ, "MUDD_MAX_ISA": level, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(
        rf"^ *((?:\w+(?:\.{level})?: )?outputs (?!0{{16}})[0-9a-f]{{16}})$", done.stdout, re.MULTILINE
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-500:], file=sys.stderr)
    return done.returncode, [line.replace(f".{level}:", ":") for line in found]


def same_suites(folder: Path, names: list[str], level: str) -> int:
    """Print whether each suite passes with the hashes of x86-64. Return the number of failed suites."""
    arm, own = folder / "build", ROOT / "build" / "run"
    qemu = ["qemu-aarch64", "-L", str(folder / "root")]
    wrong = 0
    for name in names:
        for tree in (arm, own):
            subprocess.run(["ninja", "-C", str(tree), name], check=True, stdout=subprocess.DEVNULL)
        place = Path("tests", "cpp", name)
        bad, theirs = outputs([*qemu, str(arm / place)], level)
        _, ours = outputs([str(own / place)], SAME_TILE[level])
        differ = sorted({line.rpartition(" ")[0] for line in set(theirs) ^ set(ours)})
        good = not bad and theirs == ours and bool(ours)
        wrong += not good
        said = "equal" if theirs == ours else f"DIFFER: {', '.join(differ)}"
        print(f"{name}: exit {bad}, {len(ours)} hashes, {said}", flush=True)
    return wrong


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
    parser.add_argument("--suites", action="store_true", help="the suites of CTest, all or those named")
    parser.add_argument("--level", choices=("neon", "portable"), default="neon", help="of ARM (neon)")
    parser.add_argument("words", nargs="*", help="cases (20), names")
    asked = parser.parse_intermixed_args()
    names = [word for word in asked.words if not word.isdecimal()]
    if asked.suites:
        return min(1, same_suites(asked.folder, names or op_suites(), asked.level))
    count = next((int(word) for word in asked.words if word.isdecimal()), 20)
    return min(1, same_cases(asked.folder, count, names, asked.level))


if __name__ == "__main__":
    sys.exit(main())
