"""Memory limits: free memory, control groups of both versions, and the error."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text, flops_text
from mudd_core.engine import memory


def group(folder: Path, limit_name: str, limit: str, usage_name: str, usage: int, cache: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit_name).write_text(limit + "\n")
    (folder / usage_name).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache}\n")


def test_resident_memory_follows_what_is_touched() -> None:
    before = memory.resident_bytes()
    block = mmap.mmap(-1, 64 * memory.MIB)  # malloc may return pages that are resident already
    np.frombuffer(block, np.uint8)[:] = 1
    assert memory.resident_bytes() - before > 48 * memory.MIB
    del block


def test_the_tightest_group_counts_parents_included(tmp_path: Path) -> None:
    group(tmp_path / "a" / "b", "memory.max", "max", "memory.current", 10, "inactive_file 0")
    group(tmp_path / "a", "memory.max", "5000", "memory.current", 3000, "inactive_file 500")
    assert memory.available_bytes(tmp_path, "0::/a/b\n") == (2500, "the memory limit of the control group")
    group(tmp_path / "a" / "b", "memory.max", "1000", "memory.current", 3000, "inactive_file 0")
    assert memory.available_bytes(tmp_path, "0::/a/b\n")[0] == 0


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    names = ("memory.limit_in_bytes", "9000", "memory.usage_in_bytes", 4000, "total_inactive_file 1000")
    group(tmp_path / "memory" / "job", *names)
    groups = "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n"
    assert memory.available_bytes(tmp_path, groups) == (6000, "the memory limit of the control group")


def test_without_groups_free_memory_counts(tmp_path: Path) -> None:
    have, limit = memory.available_bytes(tmp_path, "0::/\n")
    assert limit == "free memory" and have > memory.MIB


def test_too_much_is_refused_with_what_mends_it() -> None:
    memory.require(memory.MIB, "this")
    with pytest.raises(
        UserError, match=r"the run needs 1\.000 TiB more, but .+ leaves [\d.,]+ \w+; take \d+$"
    ):
        memory.require(1 << 40, "the run", lambda have: f"take {have}")


def test_units_are_those_that_people_read() -> None:
    counts = [0, 1023, 1024, 27.3 * 2**20, 999.9 * 2**30, 1.5 * 2**40, 2.0**70]
    assert [bytes_text(count) for count in counts] == [
        "0 bytes",
        "1,023 bytes",
        "1.000 KiB",
        "27.30 MiB",
        "1,000 GiB",
        "1.500 TiB",
        "1,024 EiB",
    ]
    assert [flops_text(count) for count in (43.91e6, 8.764e16, 1.2e19)] == [
        "43.91 MFLOP",
        "87.64 PFLOP",
        "12.00 EFLOP",
    ]
