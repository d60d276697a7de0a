"""Compare the suites of CTest on 64-bit ARM, under qemu-user, with x86-64, bit for bit:

    .venv/bin/python tests/aarch64_suites.py [suite...] [--quick] [--level=portable] [--page-size=65536]

A suite prints hashes of all results that it compares, by kernel row. The hashes of ARM's rows at one level must equal
the hashes of x86-64's rows of the same tile: neon and avx2, portable and portable. Some suites choose their shapes by
the tile. Suites are built on demand: for ARM in build/aarch64, for x86-64 in build/run.
This shows nothing about the speed of ARM.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ARM, OWN = ROOT / "build" / "aarch64", ROOT / "build" / "run"
QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12")
PAGES = (4096, 16384, 65536)  # sizes of the pages of ARM's kernels
# With pages of 64 KiB, qemu-user 7.2 does not map the memory in which ld.so places the thread-local stream of doctest.
NOT_PAGED = ("io_test",)
SAME_TILE = {"neon": "avx2", "portable": "portable"}  # levels of x86-64
# CI runs these: most kinds of kernels in few seconds.
QUICK = (
    "io_test",
    "gemm_test",
    "gemm_gradient_test",
    "simd_math_test",
    "level_elements_test",
    "level_sums_test",
    "cross_entropy_bits_test",
    "depth_mix_bits_test",
    "rope_test",
    "adamw_test",
)
# Suites that print no hashes. level_elements_test and level_sums_test hash the results of their kernels.
NO_HASHES = (
    "io_test",
    "activation_test",
    "dropout_test",
    "glu_test",
    "reduce_test",
    "wire_test",
)


class Outcome(NamedTuple):
    """The comparison of a suite."""

    suite: str
    code: int
    hashes: int
    differ: list[str]
    seconds: float

    @property
    def good(self) -> bool:
        """Return whether ARM passes the suite with the bits of x86-64."""
        return not self.code and not self.differ and (self.hashes > 0 or self.suite in NO_HASHES)

    def __str__(self) -> str:
        bits = f"DIFFER: {', '.join(self.differ)}" if self.differ else "equal"
        return f"{self.suite}: exit {self.code}, {self.hashes} hashes, {bits}, {self.seconds:.0f} s"


def missing() -> str:
    """Return the missing packages of Debian, or an empty string."""
    packages = {
        "g++-aarch64-linux-gnu": any(map(shutil.which, COMPILERS)),
        "qemu-user": shutil.which(QEMU[0]),
    }
    return " ".join(name for name, found in packages.items() if not found)


def op_suites() -> list[str]:
    """Return the test programs that print hashes of fp32 results: all except the benchmarks."""
    marks = re.compile(r"\A// levels|check_levels\(|for_each_row\(")
    files = sorted((ROOT / "tests" / "cpp").glob("*_test.cc"))
    names = [file.stem for file in files if marks.search(file.read_text(encoding="utf-8"))]
    return [name for name in names if "bf16" not in name and name != "peak_test"]


def configured() -> None:
    """Create the build tree for ARM if it does not exist."""
    if not (ARM / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "aarch64"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def build(names: Iterable[str]) -> None:
    """Build the suites for ARM and for x86-64."""
    configured()
    for tree in (ARM, OWN):
        subprocess.run(["ninja", "-C", str(tree), *names], check=True, stdout=subprocess.DEVNULL)


def outputs(command: list[str], level: str) -> tuple[int, list[str]]:
    """Run a suite at a level. Return its exit code and the hash lines of the level's kernels or of no kernel."""
    threads = {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "2000"}  # as in CTest
    environment = {**os.environ, **threads, "MUDD_MAX_ISA": level}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(
        rf"^ *((?:\w+(?:\.{level})?: )?outputs (?!0{{16}})[0-9a-f]{{16}})$", done.stdout, re.MULTILINE
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-500:], file=sys.stderr)
    return done.returncode, [line.replace(f".{level}:", ":") for line in found]


def outcome(name: str, level: str, page: int = PAGES[0]) -> Outcome:
    """Return the comparison of a suite, which must be built. page: the bytes of a page on ARM."""
    begin, place = time.monotonic(), Path("tests", "cpp", name)
    code, theirs = outputs([*QEMU, "-p", str(page), str(ARM / place)], level)
    seconds = time.monotonic() - begin
    _, ours = outputs([str(OWN / place)], SAME_TILE[level])
    differ = sorted({line.rpartition(" ")[0] or "outputs" for line in set(theirs) ^ set(ours)})
    if theirs != ours and not differ:
        differ = ["the order of the hashes"]
    return Outcome(name, code, len(ours), differ, seconds)


def compared(names: Sequence[str], level: str = "neon", page: int = PAGES[0]) -> Iterator[Outcome]:
    """Yield the comparison of each suite in this order; a suite for each core runs at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(partial(outcome, level=level, page=page), names)


def head() -> str:
    """Return the first line of a log: the compiler and the emulator."""
    compiler = next(name for name in COMPILERS if shutil.which(name))
    commands = ([compiler, "--version"], [QEMU[0], "--version"])
    lines = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands
    ]
    return ", ".join(line.splitlines()[0] for line in lines)


def report(names: Sequence[str], level: str = "neon", page: int = PAGES[0]) -> int:
    """Build the suites and print their comparisons; return 1 if a suite fails or differs."""
    begin = time.monotonic()
    build(names)
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    wrong = 0
    for found in compared(names, level, page):
        wrong += not found.good
        print(found, flush=True)
    print(f"{len(names) - wrong} of {len(names)} suites pass with the bits of x86-64")
    return min(1, wrong)


def main() -> int:
    """Print the comparisons; return 1 if a suite fails or differs, 2 if a package is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help="names as gemm_test (all)")
    parser.add_argument("--quick", action="store_true", help="the ten suites of CI")
    parser.add_argument("--level", choices=tuple(SAME_TILE), default="neon", help="of ARM (neon)")
    parser.add_argument("--page-size", type=int, choices=PAGES, default=PAGES[0], help="of ARM (4096)")
    asked = parser.parse_args()
    names = asked.suites or (QUICK if asked.quick else op_suites())
    if unknown := [name for name in names if not (ROOT / "tests" / "cpp" / f"{name}.cc").exists()]:
        parser.error(f"expected suites of tests/cpp, as gemm_test, got {', '.join(unknown)}")
    if lack := missing():
        print(f"[aarch64] missing: {lack}; type: apt-get install {lack}", file=sys.stderr)
        return 2
    return report(names, asked.level, asked.page_size)


if __name__ == "__main__":
    sys.exit(main())
