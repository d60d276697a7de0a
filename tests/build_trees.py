"""Build trees of other compilers in build/<tree>, and the op suites of CTest in a tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OWN = "run"  # the tree of ./run
_STATE = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*\s*(\S+)", re.MULTILINE)
_HASH = re.compile(r"^\d+: +(\S+): outputs ([0-9a-f]{16})$", re.MULTILINE)


def tree_of(compiler: str) -> str:
    """Return the name of a compiler's tree: clang of clang++-14."""
    return Path(compiler).name.replace("++", "").partition("-")[0]


def compiler_of(folder: Path) -> str:
    """Return the first line that the compiler of a tree says of its version."""
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (folder / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert found is not None
    done = subprocess.run([found[1], "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def op_suites() -> list[str]:
    """Return the programs of CTest that run at each level, or compare levels."""
    files = sorted((ROOT / "tests" / "cpp").glob("*_test.cc"))
    return [
        file.stem
        for file in files
        if file.stem.startswith("level_") or "levels" in file.open(encoding="utf-8").readline()
    ]


def build(compiler: str, targets: Sequence[str]) -> str:
    """Configure and build the tree of a compiler; its name."""
    tree = tree_of(compiler)
    if tree == OWN:
        raise SystemExit(f"--compiler={compiler}: build/{OWN} is the tree of ./run; give another name")
    options = ["-DMUDD_TESTS=ON", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD / tree, "-G", "Ninja", *options], check=True)
    subprocess.run(["cmake", "--build", BUILD / tree, "--target", *targets], check=True)
    return tree


@dataclass(frozen=True)
class Suites:
    """What the op suites of a tree said: `state` by test (Passed, ***Failed), hashes of outputs by kernel table."""

    state: Mapping[str, str]
    hashes: Mapping[str, str]

    @property
    def failed(self) -> list[str]:
        """Return the names of the tests that did not pass."""
        return [name for name, state in self.state.items() if state != "Passed"]


def run_suites(folder: Path, levels: Sequence[str], environment: Mapping[str, str] = os.environ) -> Suites:
    """Run the op suites of a tree at some levels."""
    names = f"^({'|'.join(op_suites())})(\\.({'|'.join(levels)}))?$"
    command = ["ctest", "--test-dir", folder, "--verbose", "--tests-regex", names]
    text = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout
    return Suites(dict(_STATE.findall(text)), dict(_HASH.findall(text)))


def compared_suites(one: Suites, other: Suites) -> tuple[bool, list[str]]:
    """Compare two trees' suites: whether all pass with equal hashes, and what to say of it."""
    differ = sorted(k for k in {*one.hashes, *other.hashes} if one.hashes.get(k) != other.hashes.get(k))
    lines = [f"op suites: {len(other.state)} run, failed: {', '.join(other.failed) or 'none'}"]
    lines += [f"hashes of {len(other.hashes)} kernel tables, different: {', '.join(differ) or 'none'}"]
    good = not (one.failed or other.failed or differ) and bool(other.state) and bool(other.hashes)
    return good, lines
