"""bench_ranks.py keeps its results, and its page says which limits they meet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_ranks import needs_mpi
from places import ROOT

BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH)]

import rank_programs  # noqa: E402
import ranks_page  # noqa: E402

ABOUT = {
    "cpu": "a CPU",
    "flags": "avx2",
    "max_isa": "",
    "commit": "0",
    "date": "today",
    "steps": "20 after 5",
}


def row(program: str, speed: float, pss: float, **more: Any) -> dict[str, Any]:
    used = [{"now": {"pss": pss}}]
    own = {
        "shape": "55M",
        "precision": "fp32",
        "program": program,
        "isa": "avx2",
        "spread": 0.0,
        "exposed": 0.02,
    }
    return {**own, "tokens_per_second": speed, "memory_of_ranks": used, "other_steps": "", **more}


def part(*rows: dict[str, Any]) -> dict[str, Any]:
    return {**ABOUT, "seconds": 1, "rows": list(rows)}


def test_metrics_are_ratios_of_one_part() -> None:
    kept = {
        "steps 55M fp32": part(
            row("1 rank x 2 threads", 100, 9),
            row("2 ranks x 1 thread", 98, 5),
            row("1 rank x 1 thread", 55, 9),
        ),
        "baselines 55M fp32": part(
            row("2 ranks x 1 thread", 90, 5),
            row("DDP 25 MB", 60, 10),
            row("DDP 5 MB", 50, 10),
            row("DDP ZeRO 25 MB", 80, 6),
        ),
        "experts 9M fp32": part(
            row("1 rank x 2 threads", 100, 9, shape="Mixtral 9M"),
            row("2 ranks x 1 thread, mesh.expert=2", 96, 5, shape="Mixtral 9M"),
        ),
        "zero3 55M fp32": part(
            row("1 rank x 2 threads", 90, 9), row("2 ranks x 1 thread, mesh.zero=3, each a node", 80, 5)
        ),
        "cut_baselines 55M fp32": part(
            row("2 ranks x 1 thread, mesh.zero=3", 90, 5),
            row("FSDP2", 60, 10),
            row("DeepSpeed stage 3", 75, 8),
        ),
        "losses 9M fp32": part(
            row("2 ranks x 1 thread, mesh.zero=3", 0, 0, shape="9M", loss_difference=0.0, steps=20),
            row("FSDP2", 0, 0, shape="9M", loss_difference=2e-6, steps=20),
        ),
        "sums": part({"mib": 32, "allreduce_ms": 30, "window_ms": 3, "window_gb_s": 8, "copy_gb_s": 20}),
        "link 55M fp32": part({"skipped": "no network namespaces: not root"}),
    }
    found = {metric: (value, bar) for metric, value, bar, _ in ranks_page.metrics(kept)}
    assert found["55M fp32: 2 ranks x 1 thread over 1 rank x 2 threads, tokens/s"] == (0.98, 0.97)
    assert found["55M fp32: exposed communication inside a node"] == (0.02, 0.03)
    assert found["Mixtral 9M fp32: 2 ranks x 1 thread, mesh.expert=2 over 1 rank x 2 threads, tokens/s"] == (
        0.96,
        0.95,
    )
    assert found["55M: 2 ranks x 1 thread over DDP 25 MB, tokens/s"] == (1.5, 1.3)
    assert found["55M: 2 ranks x 1 thread over DDP 25 MB, memory of a process (Pss)"] == (0.5, 0.6)
    assert found[
        "55M fp32: 2 ranks x 1 thread, mesh.zero=3, each a node over 1 rank x 2 threads, tokens/s"
    ] == (pytest.approx(8 / 9), 0.9)
    faster = "55M: 2 ranks x 1 thread, mesh.zero=3 over DeepSpeed stage 3"
    assert found[f"{faster}, tokens/s"] == (1.2, 1.5)
    assert found[f"{faster}, memory of a process (Pss)"] == (0.625, 0.8)
    assert found["sum of 32 MiB: MPI_Allreduce over ours, time"] == (10, 5)
    [losses] = [metric for metric in found if "loss" in metric]
    assert losses == "9M: FSDP2, largest difference of a loss from ours in 20 steps"
    assert found[losses] == (2e-6, 1e-4)
    text = ranks_page.page(kept)
    assert "| 2.0e-06 | at most 0.0001 | met |" in text
    assert "| 1.782 | at least 1.85 | MISSED |" in text and "| 0.020 | at most 0.03 | met |" in text
    assert "| 0.400 | at least 0.5 | MISSED |" in text and "left out: no network namespaces" in text


def test_a_baseline_that_took_other_steps_does_not_count() -> None:
    wrong = row("DDP 25 MB", 200, 1, other_steps="loss differs")
    kept = {"baselines 55M fp32": part(row("2 ranks x 1 thread", 90, 5), wrong, row("DDP 5 MB", 50, 10))}
    assert {metric for metric, *_ in ranks_page.metrics(kept)} == {
        "55M: 2 ranks x 1 thread over DDP 5 MB, tokens/s",
        "55M: 2 ranks x 1 thread over DDP 5 MB, memory of a process (Pss)",
    }


def test_what_is_hidden_is_what_the_step_does_not_take_longer() -> None:
    alone = {"tokens_of_a_step": 1024, "tokens_per_second": 1024.0, "processor_seconds": 1.0}
    sent = {
        "control": (5, 10**9),
        "sum": (10, ranks_page.LINK_BYTES * 10),
        "gather": (10, ranks_page.LINK_BYTES * 10),
    }
    nodes = {"tokens_of_a_step": 2048, "tokens_per_second": 2048 / 1.5, "sent": sent, "exposed": 0.4}
    nodes["processor_seconds"] = 1.2
    memory = {**nodes, "tokens_per_second": 2048 / 1.1}
    rows = {"1 rank": alone, "dist.node=rank": memory, "link of 1 Gb/s": nodes}
    local, found = ranks_page.hidden(rows, "55M", 10)
    assert "hidden" not in local and local["step_s"] == pytest.approx(1.1)
    assert found["link_s"] == pytest.approx(2) and found["hidden"] == pytest.approx(0.75)
    assert found["left_over_s"] == pytest.approx(-0.5)  # the planted step is shorter than the link allows


def test_formula_and_plan_are_near_each_other() -> None:
    zero = dict.fromkeys(("private", "shared", "rss", "pss"), 0.0)
    for world in (1, 2, 4):
        used = [{"program": zero, "now": {**zero, "pss": 100.0}}] * world
        found = rank_programs.memory_row({"ranks": world, "memory_of_ranks": used, "memory": {}}, "9M", [])
        assert found["node"] == 100 * world
        # A formula with few terms is within a tenth of the plan.
        assert found["formula_node"] == pytest.approx(found["plan_node"], rel=0.1)


@needs_mpi
def test_the_program_keeps_rows_and_page(tmp_path: Path) -> None:
    file = tmp_path / "ranks.json"
    words = ["--tiny", "--only", "memory", "--shapes", "9M", "--steps", "1", "--out", str(file)]
    subprocess.run([sys.executable, str(BENCH / "bench_ranks.py"), *words], check=True, timeout=120)
    rows = json.loads(file.read_text())["memory 9M fp32"]["rows"]
    assert [r["ranks"] for r in rows] == [1, 2, 4]
    assert rows[0]["node"] < rows[1]["node"] < rows[2]["node"]
    assert rows[0]["private_of_a_rank"] > rows[2]["private_of_a_rank"]
    assert "- memory 9M fp32: " in file.with_suffix(".md").read_text()
