"""The programs of bench_ranks.py run the same steps with one rank or two, with mudd_core or PyTorch."""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mpi_ranks import ENVIRONMENT, needs_mpi
from mudd_core.engine.engine import Engine
from places import ROOT
from rank_runs import batch_of, on_ranks

BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH)]

import bench_step  # noqa: E402
import rank_memory  # noqa: E402
from mudd_core.cli.race.turns import Program, take_turns  # noqa: E402
from near import COUNTED  # noqa: E402
from same_step import another_computation, compare  # noqa: E402
from shapes import SHAPES  # noqa: E402
from workload import parameter_shapes, random_weights  # noqa: E402

TINY = ["--shape", "9M", "--seq-len", "16", "--batch", "4", "--threads", "1", "--steps", "2", "--warmup", "1"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the initial weights of all programs."""
    file = tmp_path_factory.mktemp("bench") / "weights.npz"
    np.savez(file, **random_weights(parameter_shapes(SHAPES["9M"], "transformer_pp")))  # type: ignore[arg-type]
    return file


def program(words: list[str], script: str, weights: Path, *options: str) -> dict[str, Any]:
    """Return the report of one program that runs its steps in turn."""
    argv = [*words, sys.executable, str(BENCH / script), *TINY, "--weights", str(weights), "--json", *options]
    [row] = take_turns([Program([*argv, "--in-turn"], {**os.environ, **ENVIRONMENT})], 3)
    assert row is not None
    return row


@pytest.fixture(scope="module")
def alone(weights: Path) -> dict[str, Any]:
    """Return the report of one process."""
    return program([], "bench_step.py", weights)


@needs_mpi
@pytest.mark.parametrize(("node", "zero"), [("host", "1"), ("rank", "1"), ("rank", "3")])
def test_two_ranks_take_the_steps_of_one(node: str, zero: str, weights: Path, alone: dict[str, Any]) -> None:
    row = program([*MPIRUN, "2"], "bench_step.py", weights, "--node", node, "--zero", zero)
    assert (row["ranks"], row["nodes"]) == (2, 2 if node == "rank" else 1)
    assert row["losses"] == alone["losses"]
    for kind, length in alone["state"].items():
        assert row["state"][kind] == pytest.approx(length, rel=COUNTED), kind
    assert (sum(bytes for _, bytes in row["sent"].values()) > 0) == (node == "rank")
    assert 0 < row["exposed"] < 1 and alone["exposed"] < 0.05
    assert len(row["memory_of_ranks"]) == 2


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("torch_ddp.py", ["--optimizer", "adamw"]),
        ("torch_ddp.py", ["--optimizer", "adamw", "--micro-batches", "2"]),
        ("torch_ddp.py", ["--optimizer", "zero"]),
        ("torch_fsdp2.py", []),
    ],
)
def test_a_baseline_of_two_processes_takes_the_steps_of_one(
    script: str, options: list[str], weights: Path, alone: dict[str, Any]
) -> None:
    row = program([], f"baselines/{script}", weights, *options)
    row["family"] = "transformer_pp"
    compare(row, alone)
    assert another_computation(row, "fp32", None) == ""
    assert row["ranks"] == len(row["memory_of_ranks"]) == 2


def test_a_step_tells_what_it_only_exchanged() -> None:
    config = bench_step.run_config(
        replace(SHAPES["9M"], V=64, L=2, D=16, H=2, F=24, T=12, B=2), "transformer_pp", 0
    )

    def work(comm: Any) -> float:
        engine = Engine(config, mc.Model(config.model, seed=1, comm=comm))
        engine.train_step(0, 1e-3, batch_of(config, 0))
        return engine.step_seconds["messages"]

    assert all(seconds > 0 for seconds in on_ranks(work, 2))


def test_memory_is_read_as_the_kernel_counts_it() -> None:
    before = rank_memory.memory_of("self")
    # New pages from the kernel, because malloc may reuse resident memory that an earlier test freed.
    pages = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    taken = np.frombuffer(pages, np.float64)
    taken[:] = 1
    after = rank_memory.memory_of(str(os.getpid()))
    assert taken.nbytes >> 20 == pytest.approx(after["private"] - before["private"], abs=4)
    assert after["rss"] == pytest.approx(after["private"] + after["shared"], abs=1)


def test_the_formula_shares_weights_and_moments() -> None:
    assert rank_memory.formula_mib(1 << 20, 0, 1) == {"a_rank": 16, "a_node": 16}
    assert rank_memory.formula_mib(1 << 20, 4 << 20, 2) == {"a_rank": 12, "a_node": 24}
