"""SIGKILL of one rank at named points of a step and of a save: the job ends, and the same command resumes it.

./run soak mpi tests all points. test_resume_of_ranks.py tests the points of a save separately.
"""

from __future__ import annotations

import re
from pathlib import Path

from mpi_ranks import needs_mpi, window_files
from rank_faults import Kills, job_of, run_of
from tiny_run import MIXTURE, TinyRun

pytestmark = needs_mpi


def test_a_killed_rank_is_named_and_no_bit_is_lost(whole: TinyRun, tiny_text: Path, tmp_path: Path) -> None:
    before = set(window_files())
    kills = Kills(tmp_path / "run", tiny_text, 2)
    for rank, point in [
        (1, "phase_forward:3"),
        (0, "phase_backward:4"),
        (1, "phase_reduce:5"),
        (0, "phase_verdict:6"),
        (1, "phase_gather:7"),
        (1, "after_block:2"),
        (0, "before_rename"),
    ]:
        said = kills.kill(rank, point)
        phase = point.removeprefix("phase_").split(":")[0] if point.startswith("phase_") else "save"
        assert said.count("is gone: its process was killed") == 1, said
        assert re.search(
            rf"\[ranks\] rank {rank} \(.+\) in step \d+ \({phase}(, mesh\.fsdp)?\).* is gone", said
        ), said
    assert kills.finish(whole)
    assert set(window_files()) <= before


def test_a_rank_killed_while_weights_are_gathered_is_named_and_no_bit_is_lost(
    whole: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    kills = Kills(tmp_path / "run", tiny_text, 2, ("mesh.zero=3", "dist.node=rank"))
    for rank, instant in [(1, 3), (0, 40), (1, 121)]:  # the n-th gather; an update waits for about ten
        said = kills.kill(rank, f"phase_gather:{instant}")
        # the message is mpirun's: no other rank of that node is left to report it
        assert f"process rank {rank} " in said, said
    assert kills.slowest < 5
    assert kills.finish(whole)


def test_a_rank_killed_while_rows_of_experts_are_exchanged_is_named_and_no_bit_is_lost(
    tiny_text: Path, tmp_path: Path
) -> None:
    steps = ("train.steps=12", "train.save_every=4", "train.eval_every=12")
    whole = run_of(tmp_path / "whole", tiny_text, *steps, config=MIXTURE)
    whole.finished()
    kills = Kills(tmp_path / "run", tiny_text, 2, (*steps, "mesh.expert=2"), MIXTURE)
    # A step has ten exchanges: kill at the tokens of the first layer, and in the sixth step.
    for rank, instant in [(1, 3), (0, 58)]:
        said = kills.kill(rank, f"phase_exchange:{instant}")
        assert said.count("is gone: its process was killed") == 1, said
        assert re.search(
            rf"\[ranks\] rank {rank} \(.+\) in step \d+ \(exchange, mesh\.expert\).* is gone", said
        ), said
    assert kills.finish(whole)
    too_many = job_of(
        tmp_path / "small", tiny_text, 2, *steps, "mesh.expert=2", "mesh.expert_room=1", config=MIXTURE
    )
    assert too_many.finish() == 2, too_many.tail
    assert too_many.output.count("Set mesh.expert_room=") == 1, too_many.output
