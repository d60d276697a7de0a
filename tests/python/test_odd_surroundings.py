"""Variables and systems that are not as a run expects: one line with the name, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import require_levels, started_processes
from mudd_core.engine import memory
from mudd_core.run.rank_cores import widen
from tiny_run import ROOT


@pytest.mark.parametrize("name", ["MUDD_EMULATE", "MUDD_MAX_ISA"])
@pytest.mark.parametrize("words", [["--config=tiny.py", "--plan"], ["profile", "--config=tiny.py"]])
def test_a_level_that_does_not_exist_is_2(name: str, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        env={**os.environ, name: "nix"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{name}: expected one of" in done.stderr and "Traceback" not in done.stderr


def test_a_level_that_exists_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUDD_MAX_ISA", "avx2")
    require_levels()
    monkeypatch.setenv("MUDD_MAX_ISA", "")
    require_levels()


@pytest.mark.parametrize(
    ("ranks", "rank"), [("x", "0"), ("", "0"), ("-1", "0"), ("2", "x"), ("2", "2"), ("2", None)]
)
def test_numbers_that_mpirun_never_sets_are_refused(ranks: str, rank: str | None) -> None:
    environment = {"OMPI_COMM_WORLD_LOCAL_SIZE": ranks}
    if rank is not None:
        environment["OMPI_COMM_WORLD_LOCAL_RANK"] = rank
    with pytest.raises(UserError, match="env -u OMPI_COMM_WORLD_LOCAL_SIZE"):
        widen(0, environment, parent=[0, 1])


def test_a_count_of_processes_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("x", "-3", "", "9" * 5000):
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", value)
        with pytest.raises(UserError, match=r"\[launch\] OMPI_COMM_WORLD_SIZE: expected a whole number"):
            started_processes()


def test_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = memory.resident_bytes()
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert memory.resident_bytes() >= known // 2 and memory.file_bytes() == 0
    assert memory.peak_resident_bytes() > 16 * memory.MIB
    assert memory.available_bytes()[0] > 0
