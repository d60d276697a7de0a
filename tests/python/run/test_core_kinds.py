"""CPUs with fast and slow cores, from a copy of the kernel's files: the fast ones are used, and one line says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.cli import mpirun
from mudd_core.run.ranks import core_kinds, ranks
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.report.progress import Progress
from mudd_core.tools.doctor import Level, processor
from mudd_core.tools.doctor.command import checked

ROCKCHIP = (530,) * 4 + (1024, 1024, 1003, 1003)  # two pairs of fast cores with different frequencies
Machine = Callable[..., set[int]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A function that simulates the cores of a machine by their capacities, and returns its affinity mask."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def simulated(found: tuple[int | str, ...], machine: str = "aarch64") -> set[int]:
        for core, one in enumerate(found):
            folder = tmp_path / f"cpu{core}"
            folder.mkdir()
            if one != "":
                (folder / "cpu_capacity").write_text(f"{one}\n")
        mask = set(range(len(found)))

        def bind(process: int, cores: list[int]) -> None:
            mask.intersection_update(cores)

        monkeypatch.setattr(core_kinds.platform, "machine", lambda: machine)
        monkeypatch.setattr(core_kinds, "CPUS", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(mask))
        monkeypatch.setattr(os, "sched_setaffinity", bind)
        monkeypatch.setattr(os, "cpu_count", lambda: len(found))
        monkeypatch.setattr(ranks, "usable_cores", lambda: len(mask))
        return mask

    return simulated


def test_the_fast_cores_are_used(machine: Machine) -> None:
    mask = machine(ROCKCHIP)
    assert core_kinds.fast_cores(mask) == [4, 5, 6, 7] and core_kinds.slow_cores_text() == ""
    assert Ranks().threads(0) == 4 and mask == {4, 5, 6, 7}
    assert Ranks().threads(0) == 4 and Ranks().threads(3) == 3  # again in this process
    text = core_kinds.slow_cores_text()
    assert text.startswith(
        "[cores] 4 of 8 cores are used: the others are slower (cpu_capacity 530, not 1003)"
    )
    assert "train.threads=8 uses all" in text and "\n" not in text


@pytest.mark.parametrize(
    "found",
    [(1024,) * 4, (1024, 1024, 870, 870), ("",) * 4, (1024, 530, ""), (0, 0), ("many", 1024)],
    ids=str,
)
def test_other_machines_use_all_cores(found: tuple[int | str, ...], machine: Machine) -> None:
    mask = machine(found)
    assert Ranks().threads(0) == 0 and len(mask) == len(found) and core_kinds.slow_cores_text() == ""


def test_other_cpus_than_arm_use_all_cores(machine: Machine) -> None:
    mask = machine(ROCKCHIP, "x86_64")
    assert Ranks().threads(0) == 0 and len(mask) == 8 and core_kinds.slow_cores_text() == ""


def test_more_threads_than_fast_cores_use_all_cores(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = machine(ROCKCHIP)
    assert Ranks().threads(8) == 8 and len(mask) == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert Ranks().threads(0) == 0 and len(mask) == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_PLACES", "cores")
    assert Ranks().threads(0) == 0 and len(mask) == 8
    monkeypatch.delenv("OMP_PLACES")
    assert Ranks().threads(0) == 0 and mask == {4, 5, 6, 7}


def test_a_binding_to_slow_cores_stays(machine: Machine) -> None:
    mask = machine(ROCKCHIP)
    mask -= {4, 5, 6, 7}
    assert Ranks().threads(0) == 0 and mask == {0, 1, 2, 3} and core_kinds.slow_cores_text() == ""


def test_ranks_divide_the_fast_cores(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(ROCKCHIP)
    monkeypatch.setattr(mpirun, "usable_cores", lambda: 8)
    monkeypatch.setattr(mpirun, "find_mpirun", lambda: "mpirun")
    monkeypatch.setattr(mpirun, "_siblings", str)
    found = mpirun.this_machine()
    assert (found.cores, found.threads, found.whole) == (4, 4, False)


def test_doctor_names_the_slow_cores(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(ROCKCHIP)
    monkeypatch.setattr(processor, "usable_cores", lambda: len(os.sched_getaffinity(0)))
    found = checked("processor.cores", Path("runs"))
    assert any(one.level == Level.OK and "4 of 8 cores are used" in one.found for one in found)
    assert not any("bound to" in one.found or "threads share" in one.found for one in found)


def test_the_start_of_a_run_says_it_once(
    machine: Machine, tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = machine(ROCKCHIP)
    words = [f"data.path={tiny_text}", f"data.cache_dir={tmp_path / 'cache'}", "data.tokenizer=bytes"]
    config = mc.load_config("tiny.py", [*words, "train.steps=1", "optim.warmup_steps=1", "train.threads=2"])
    with mc.Trainer(config, tmp_path / "run", progress=Progress()) as trainer:
        trainer.fit()
    captured = capsys.readouterr()
    assert mask == {4, 5, 6, 7}
    assert (captured.out + captured.err).count("4 of 8 cores are used") == 1
