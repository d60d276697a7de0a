"""Unexpected variables and systems: one line with the name, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import require_levels, started_processes
from mudd_core.cli import commands, main
from mudd_core.engine import memory
from mudd_core.run.ranks.rank_cores import widen_binding
from mudd_core.run.ranks.ranks import exit_code
from tiny_run import CONFIG, ROOT


@pytest.mark.parametrize("name", ["MUDD_EMULATE", "MUDD_MAX_ISA"])
@pytest.mark.parametrize("words", [["--config=tiny.py", "--plan"], ["profile", "--config=tiny.py"]])
def test_a_level_that_does_not_exist_is_2(name: str, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        env={**os.environ, name: "nix"},
        capture_output=True,
        text=True,
    )
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
        widen_binding(0, environment, parent=[0, 1])


def test_a_count_of_processes_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("x", "-3", "", "9" * 5000):
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", value)
        with pytest.raises(UserError, match=r"\[launch\] OMPI_COMM_WORLD_SIZE: expected a whole number"):
            started_processes()


def test_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = memory.resident_bytes()
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert memory.resident_bytes() >= known // 2 and memory.file_bytes() == 0
    assert memory.available_bytes()[0] > 0


@pytest.mark.parametrize("kib", [60_000, 120_000])
def test_too_little_address_space_is_2_with_the_limit(kib: int) -> None:
    command = f"ulimit -v {kib}; exec {sys.executable} {ROOT / 'launch.py'} --config=tiny.py --plan"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr.startswith("error: [memory] ulimit -v: expected at least ")
        and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    "error",
    [ImportError("libhdf5.so.103: failed to map segment from shared object"), MemoryError("std::bad_alloc")],
)
def test_memory_that_runs_out_is_2_with_the_cure(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "run", fail)
    assert main(["--config=tiny.py", "--plan"]) == exit_code(error) == 2
    assert capsys.readouterr().err == (
        f"error: not enough memory ({error}); raise the limit of this process (ulimit -v), or use a "
        "smaller model or batch\n"
    )


def test_a_clock_that_is_set_back_changes_no_run(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}")
    hashes = []
    for name, jump in (("straight", 0.0), ("back", 100.0)):
        began, calls = time.time(), iter(range(1 << 30))
        with monkeypatch.context() as patch:
            patch.setattr(
                time, "time", lambda began=began, calls=calls, jump=jump: began - jump * next(calls)
            )
            words = [
                f"--config={CONFIG}",
                f"--workdir={tmp_path / name}",
                *data,
                "train.steps=3",
                "log.mllog=true",
            ]
            assert main(words) == 0
        hashes.append(json.loads((tmp_path / name / "summary.json").read_text())["final_hash"])
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        assert all(row.get("seconds", 0) >= 0 for row in rows)
    assert hashes[0] == hashes[1]
