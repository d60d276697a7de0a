"""launch.py commbench: it measures every exchange of its ranks, and scale reads its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpi_ranks import mpirun, needs_mpi
from mudd_core.cli import main
from mudd_core.tools.commbench import summary
from rank_runs import on_ranks

SMALL = ("--largest=4096", "--repeats=1")


def kept(folder: Path) -> Any:
    return json.loads((folder / "commbench.json").read_text())


def test_ranks_of_a_node_sum_in_its_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commbench", "--ranks=2", f"--workdir={tmp_path / 'run'}", *SMALL]) == 0
    text, found = capsys.readouterr().out, kept(tmp_path / "run")
    assert "2 ranks as threads of one process, 1 node of 2" in text and "inside node: " in text
    assert {(row["what"], row["bytes"]) for row in found["rows"]} == {
        (what, size) for what in ("message", "all_gather", "node_sum") for size in (64, 1024)
    }
    assert all(row["seconds"] > 0 for row in found["rows"])
    assert found["between_nodes"] is None and found["inside_node"]["bandwidth"] > 0
    words = ["scale", "--config=tiny.py", "--flops=1e11", "--nodes=2"]
    assert main([*words, f"--net={tmp_path / 'run'}"]) == 2
    assert "measured on one node" in capsys.readouterr().err


def test_ranks_that_are_nodes_send_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commbench", "--ranks=3", "--node=rank", f"--workdir={tmp_path}", *SMALL]) == 0
    found = kept(tmp_path)
    assert (found["world"], found["nodes"], found["node_size"]) == (3, 3, 1)
    assert {row["what"] for row in found["rows"]} == {"message", "all_gather", "sum", "gather"}
    capsys.readouterr()
    words = ["scale", "--config=tiny.py", "--flops=1e11", "--nodes=2", f"--net={tmp_path}"]
    assert main(words) == 0
    metrics = found["between_nodes"]
    assert f"{1e6 * metrics['latency']:.3g} us" in capsys.readouterr().out


@needs_mpi
def test_processes_are_measured_alike(tmp_path: Path) -> None:
    program = "import sys; from mudd_core.cli import main; sys.exit(main())"
    code, out, errors = mpirun(2, program, "commbench", "--node=rank", f"--workdir={tmp_path}", *SMALL)
    assert code == 0, errors
    assert out.count("between nodes: ") == 1 and kept(tmp_path)["ranks_are"] == "processes"


def test_figures_follow_from_the_rows() -> None:
    rows = [
        {"what": what, "bytes": size, "seconds": seconds}
        for what, size, seconds in (
            ("node_sum", 64, 1e-6),
            ("node_sum", 1000, 1e-3),
            ("sum", 64, 5e-6),
            ("sum", 1000, 3e-3),
            ("gather", 64, 6e-6),
            ("gather", 1000, 1e-3),
        )
    ]
    found = summary(rows, 8, 2)
    assert found["inside_node"] == {"latency": 1e-6, "bandwidth": pytest.approx(2e6)}
    assert found["between_nodes"] == {"latency": pytest.approx(3e-6), "bandwidth": pytest.approx(1500 / 4e-3)}
    assert summary(rows, 2, 2)["between_nodes"] is None and summary(rows, 4, 1)["inside_node"] is None


def test_a_timer_refuses_what_it_does_not_know() -> None:
    from mudd_core import _core

    def work(comm: Any) -> None:
        timer = _core.CommTimer(comm.core, 1024)
        for what, size in (("message", 2048), ("nothing", 64), ("sum", 0)):
            with pytest.raises(ValueError, match="commbench"):
                timer.seconds(what, size, 1)

    on_ranks(work, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected several ranks"),
        (("--ranks=1",), "expected several ranks"),
        (("--ranks=2", "train.steps=3"), "expected only options, got 'train.steps=3'"),
        (("--rank=2",), "--ranks"),
        (("--ranks=2", "--largest=8"), "--largest"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["commbench", *words]) == 2
    assert message in capsys.readouterr().err
