"""Build trees of other compilers: the testing module in build/<tree>."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OWN = "run"  # the tree of ./run


def tree_of(compiler: str) -> str:
    """Return the name of a compiler's tree: clang of clang++-14."""
    return Path(compiler).name.replace("++", "").partition("-")[0]


def compiler_of(folder: Path) -> str:
    """Return the first line of the version text of a tree's compiler."""
    # cpp/cmake/aarch64.cmake keeps the cross-compiler in the second one.
    entry = r"^(?:CMAKE_CXX_COMPILER|MUDD_ARM_CXX):\w+=(.*)$"
    found = re.search(entry, (folder / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert found is not None
    done = subprocess.run([found[1], "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def build(compiler: str) -> str:
    """Configure and build the tree of a compiler; return its name."""
    tree = tree_of(compiler)
    if tree == OWN:
        raise SystemExit(f"--compiler={compiler}: build/{OWN} is the tree of ./run; give another name")
    options = ["-DMUDD_TESTS=ON", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DPython_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD / tree, "-G", "Ninja", *options], check=True)
    subprocess.run(["cmake", "--build", BUILD / tree, "--target", "_core_testing"], check=True)
    return tree
