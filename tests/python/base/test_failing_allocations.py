"""Small allocations that fail in constructors of C++ objects: MemoryError, never the end of the process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import HELPERS, TESTS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return tests/cpp/failing_new.cc compiled as a library for LD_PRELOAD."""
    target = tmp_path_factory.mktemp("failing") / "failing_new.so"
    source = TESTS / "cpp" / "failing_new.cc"
    subprocess.run(["c++", "-shared", "-fPIC", "-O1", str(source), "-o", str(target)], check=True)
    return target


def test_no_failed_allocation_of_a_construction_ends_the_process(library: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(HELPERS / "failing_allocations.py"), str(library)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = dict(re.findall(r"^([\w.]+): (\d+) failed$", ran.stdout, re.MULTILINE))
    assert len(counts) == 11 and min(map(int, counts.values())) > 0, counts
