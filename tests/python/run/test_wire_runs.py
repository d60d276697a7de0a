"""Runs with mesh.wire=bf16: stops, kills and other numbers of ranks on the same hosts end with the bits of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpi_ranks import needs_mpi
from mudd_core.cli import main
from rank_faults import Kills, run_of
from tiny_run import CONFIG
from whole_runs import SLOW, rows, run

WIRE = {"mesh.wire": "bf16"}


def test_a_run_goes_on_with_any_ranks_of_two_hosts(tiny_text: Path, tmp_path: Path) -> None:
    want = run(tmp_path / "whole", tiny_text, 2, 1, **WIRE)
    for world, on_a_host, stop, network in ((2, 1, 3, {}), (4, 2, 5, SLOW), (2, 1, 0, {})):
        got = run(tmp_path / "run", tiny_text, world, on_a_host, network, **WIRE, **{"train.stop_at": stop})
    assert got.final_hash == want.final_hash and rows(tmp_path / "run") == rows(tmp_path / "whole")
    fp32 = run(tmp_path / "fp32", tiny_text, 2, 1)
    assert fp32.final_hash != want.final_hash
    assert run(tmp_path / "alone", tiny_text, 1, **WIRE).final_hash == fp32.final_hash


@needs_mpi
def test_a_rank_that_is_killed_between_messages_changes_no_bit(tiny_text: Path, tmp_path: Path) -> None:
    words = ("dist.node=rank", "mesh.wire=bf16")
    whole = run_of(tmp_path / "whole", tiny_text, "--ranks=2", *words).finished()
    killed = Kills(tmp_path / "run", tiny_text, 2, words)
    killed.kill(1, "phase_reduce:14")
    killed.kill(0, "phase_gather:6")
    assert killed.finish(whole)
    other = run_of(tmp_path / "run", tiny_text, "--ranks=2", "dist.node=rank")
    assert other.finish() == 2 and "mesh.wire" in other.output, other.tail


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_the_plan_of_two_hosts_says_the_bytes_and_seconds_of_their_messages(
    tiny_text: Path, capsys: pytest.CaptureFixture[str], wire: str
) -> None:
    data: list[Any] = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    words = [
        f"--config={CONFIG}",
        "--plan",
        "--ranks=2",
        "--hosts=a,b",
        "--node-memory=8",
        f"mesh.wire={wire}",
    ]
    assert main([*words, *data]) == 0
    said = capsys.readouterr().out
    [line] = [line for line in said.splitlines() if line.startswith("  messages ")]
    # 50 thousand parameters: a host sends half of the gradients, and half of the weights.
    assert f"of gradients ({wire})" in line, line
