"""How the programs of bench_ranks.py start: on this machine, and on two nodes that a slow link joins."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench_step import default_micro_batch, run_config
from mudd_core.cli.mpirun import Job, find_mpirun, mpirun_argv, this_machine  # bench_step knows where
from mudd_core.run.booking import ALONE, Place, planned_bytes
from rank_memory import formula_mib, parameters
from shapes import SHAPES

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def environment() -> dict[str, str]:
    """Of all programs: root may start mpirun, and nothing of a launcher around us is seen."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    return {**own, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launcher(ranks: int, threads: int, command: list[str]) -> list[str]:
    """As `launch.py --ranks` starts them."""
    return mpirun_argv(
        Job(ranks, threads=threads),
        this_machine(),
        command,
        ["MUDD_MAX_ISA"] if "MUDD_MAX_ISA" in os.environ else [],
    )


def ours(ranks: int, threads: int, start: str, options: list[str]) -> list[str]:
    """bench_step.py in plain Python, by `ranks` as launch.py starts them, or by a bare mpirun and its options."""
    command = [sys.executable, str(HERE / "bench_step.py"), "--threads", str(threads), *options]
    if start == "plain":
        return command
    if start == "ranks":
        return launcher(ranks, threads, command)
    return [find_mpirun(), *start.split()[1:], "-n", str(ranks), *command]


def newest(tree: Path, name: str) -> Path | None:
    """The program of that name that was built last."""
    found = [*tree.glob(f"build/*/bench/{name}"), *tree.glob(f"build/*/*/bench/{name}")]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def memory_row(row: Row, shape: str, tiny: list[str]) -> Row:
    """MiB above the started program: a rank's private and shared, the node's; formula and plan beside it."""
    s, world = SHAPES[shape], int(row["ranks"])
    used = row["memory_of_ranks"]
    more = {
        k: [one["now"][k] - one["program"][k] for one in used] for k in ("private", "shared", "rss", "pss")
    }
    found: Row = {
        "ranks": world,
        **{f"{kind}_of_a_rank": max(values) for kind, values in more.items()},
        "node": sum(more["pss"]),
        "booked_by_rank_0": {kind: count / 2**20 for kind, count in row["memory"].items()},
    }
    if tiny:
        return found
    config = run_config(s, "transformer_pp", default_micro_batch(s))
    place = Place(world, world) if world > 1 else ALONE
    plan = {kind: count / 2**20 for kind, count in planned_bytes(config.model, config, place=place).items()}
    plan.pop("evaluation")
    activations = world * (plan["arena"] + plan["packed"])
    found["formula_node"] = formula_mib(parameters(s), 0, world)["a_node"] + activations
    found["plan_node"] = world * sum(plan.values())
    return found


class Link:
    """Two network namespaces joined by a link of 1 Gb/s; OSError or CalledProcessError where that is not allowed."""

    _A, _B = "mudd-a", "mudd-b"
    _SHAPED = ("tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms")

    def __init__(self, folder: Path) -> None:
        self._agent = folder / "agent.sh"

    def __enter__(self) -> Link:
        """Make both, and a program that starts the second node in its own."""
        self._agent.write_text(
            f'#!/bin/sh\nshift\nexec ip netns exec {self._B} unshare --uts sh -c "hostname {self._B}; $*"\n'
        )
        self._agent.chmod(0o700)
        try:
            for space in (self._A, self._B):
                _ip("netns", "add", space)
            _ip("link", "add", self._A, "netns", self._A, "type", "veth", "peer", self._B, "netns", self._B)
            for number, space in enumerate((self._A, self._B), 1):
                _ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", space)
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "link", "set", space, "up")
                tc = ["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", space, "root"]
                subprocess.run([*tc, *self._SHAPED], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for space in (self._A, self._B):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", space)

    def ours(self, options: list[str]) -> list[str]:
        """bench_step.py by two ranks of one thread, a namespace each."""
        network = {
            "plm_rsh_agent": str(self._agent),
            "btl": "tcp,self",
            "btl_tcp_if_include": "10.77.0.0/24",
            "oob_tcp_if_include": "10.77.0.0/24",
        }
        mca = [word for name, value in network.items() for word in ("--mca", name, value)]
        where = [
            "-n",
            "2",
            "--host",
            "10.77.0.1:1,10.77.0.2:1",
            "--bind-to",
            "none",
            "-x",
            "OMP_NUM_THREADS=1",
        ]
        start = ["ip", "netns", "exec", self._A, find_mpirun(), "--allow-run-as-root", *mca, *where]
        return [*start, sys.executable, str(HERE / "bench_step.py"), "--threads", "1", *options]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stderr=subprocess.DEVNULL)
