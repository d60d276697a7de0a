"""Measure latency and bandwidth between the ranks of a job, with the exchange that training uses.

    mpirun -n 2 python3 launch.py commbench
    mpirun -n 2 python3 launch.py commbench --node=rank --workdir=runs/bench
    python3 launch.py commbench --ranks=4

Under mpirun or srun the ranks are its processes; --ranks makes threads of this process instead. With --workdir the
results are stored there as commbench.json, which `python3 launch.py scale --net=DIR` reads.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from mudd_core import _core, dist
from mudd_core.base.errors import UserError
from mudd_core.base.paths import output_folder
from mudd_core.base.regular_files import write_text
from mudd_core.base.surroundings import is_rank
from mudd_core.config.tool_arguments import ToolArguments, whole_number

SIZES = (64, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
FILE = "commbench.json"
_WHAT = {
    "message": "one message: half of a round trip",
    "all_gather": "a part of each rank to all",
    "node_sum": "planes of the ranks of a node",
    "sum": "a plane over nodes",
    "gather": "a plane over nodes",
}


class Row(TypedDict):
    """The time of an exchange of `bytes` bytes on the slowest rank, in seconds."""

    what: str
    bytes: int
    seconds: float


class Speed(TypedDict):
    """Latency in seconds and bandwidth in bytes a second."""

    latency: float
    bandwidth: float


class Summary(TypedDict):
    """The speeds that `scale` reads. A speed is None with a single node, or with a single rank per node."""

    inside_node: Speed | None
    between_nodes: Speed | None


class Result(Summary):
    """The content of commbench.json."""

    version: int
    ranks_are: str
    world: int
    nodes: int
    node_size: int
    hosts: list[str]
    rows: list[Row]


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, rest = _parser().read(words)
    if rest:
        raise UserError(f"[commbench] expected only options, got '{rest[0]}'")
    sizes = [size for size in SIZES if size <= asked.largest]
    found: Result | None
    if asked.ranks:
        if is_rank():
            raise UserError("[commbench] --ranks: a launcher has started the ranks already; leave it out")
        found = _by_threads(asked, sizes)
    else:
        found = _by_processes(asked, sizes)
    if found is not None:
        print(text(found))
        if asked.workdir:
            _write(asked.workdir, found)
    return 0


def measure(comm: dist.Comm, sizes: Sequence[int], repeats: int) -> list[Row]:
    """Measure every kind of exchange between these ranks, and return the time of the slowest rank."""
    timer = _core.CommTimer(comm.core, max(sizes))
    kinds = ["message", "all_gather"] if comm.world > 1 else []
    kinds += ["node_sum"] * (comm.node_size > 1) + ["sum", "gather"] * (comm.nodes > 1)
    rows: list[Row] = []
    for what in kinds:
        for size in sizes:
            count = max(3, repeats if size <= 1 << 20 else repeats // 4)
            mine = timer.seconds(what, size, count)
            slowest = max(json.loads(other) for other in comm.all_gather(json.dumps(mine).encode()))
            rows.append({"what": what, "bytes": size, "seconds": slowest})
    return rows


def summary(rows: Sequence[Row], world: int, node_size: int) -> Summary:
    """Return latency and bandwidth inside a node and between nodes, as `scale` defines them. A speed is None if no
    ranks can measure it.

    Between nodes, the speed is for sum and gather together, over the plane of one node. Inside a node, it is for the
    sum of planes.
    """
    nodes, times = world // node_size, {(row["what"], row["bytes"]): row["seconds"] for row in rows}
    small, large = min(row["bytes"] for row in rows), max(row["bytes"] for row in rows)
    inside: Speed | None = None
    between: Speed | None = None
    if node_size > 1:
        inside = {
            "latency": times["node_sum", small],
            "bandwidth": large * node_size / times["node_sum", large],
        }
    if nodes > 1:
        rounds = math.ceil(math.log2(nodes))
        moved = 2 * large * (nodes - 1) / nodes
        taken = times["sum", large] + times["gather", large]
        between = {"latency": times["gather", small] / rounds, "bandwidth": moved / taken}
    return {"inside_node": inside, "between_nodes": between}


def text(found: Result) -> str:
    """Format the table, with the summary below it."""
    lines = [
        f"{found['world']} ranks as {found['ranks_are']}, {found['nodes']} node{'s' * (found['nodes'] > 1)} of "
        f"{found['node_size']}; "
        f"hosts {', '.join(found['hosts'])}",
        f"{'':<12}{'bytes':>12} {'seconds':>12} {'GB/s':>8}",
    ]
    for row in found["rows"]:
        note = f"  {_WHAT[row['what']]}" if row["bytes"] == min(one["bytes"] for one in found["rows"]) else ""
        rate = row["bytes"] / row["seconds"] / 1e9
        lines.append(f"{row['what']:<12}{row['bytes']:>12,} {row['seconds']:>12.3g} {rate:>8.3g}{note}")
    for where, speed in (("inside node", found["inside_node"]), ("between nodes", found["between_nodes"])):
        if speed is not None:
            lines.append(f"{where}: {1e6 * speed['latency']:.3g} us, {speed['bandwidth'] / 1e9:.3g} GB/s")
    return "\n".join(lines)


def _as_rank(comm: dist.Comm, asked: argparse.Namespace, sizes: Sequence[int], ranks_are: str) -> Result:
    """Return the result on rank 0; the other ranks make the same calls."""
    if comm.world < 2:
        raise UserError(
            "[commbench] expected several ranks; start it with mpirun -n 2, or use threads as ranks with --ranks=2"
        )
    rows = measure(comm, sizes, asked.repeats)
    hosts = [name.decode() for name in comm.all_gather(socket.gethostname().encode())]
    return {
        "version": 1,
        "ranks_are": ranks_are,
        "world": comm.world,
        "nodes": comm.nodes,
        "node_size": comm.node_size,
        "hosts": sorted(set(hosts)),
        "rows": rows,
        **summary(rows, comm.world, comm.node_size),
    }


def _by_threads(asked: argparse.Namespace, sizes: Sequence[int]) -> Result:
    _core.set_num_threads(max(1, len(os.sched_getaffinity(0)) // asked.ranks))
    found: list[Result] = []
    errors: list[Exception] = []

    def work(comm: dist.Comm) -> None:
        try:
            result = _as_rank(comm, asked, sizes, "threads of one process")
            if comm.rank == 0:
                found.append(result)
        except Exception as error:
            errors.append(error)
            comm.fail(70, str(error))

    comms = dist.threads(asked.ranks, 1 if asked.node == "rank" else None)
    threads = [threading.Thread(target=work, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found[0]


def _by_processes(asked: argparse.Namespace, sizes: Sequence[int]) -> Result | None:
    """Return the result on rank 0, None on the other ranks."""
    comm = dist.launched(node=asked.node, shared_bytes=len(os.sched_getaffinity(0)) * max(sizes))
    try:
        found = _as_rank(comm, asked, sizes, "processes")
    except Exception as error:
        if comm.world > 1:
            comm.fail(70, f"error: {error}")
        raise
    first = comm.rank == 0
    comm.close()
    return found if first else None


def _write(folder: str, found: Result) -> None:
    path = output_folder(Path(folder), "[commbench] --workdir") / FILE
    write_text(path, json.dumps(found, indent=1) + "\n")
    print(f"wrote {path}")


def _parser() -> ToolArguments:
    parser = ToolArguments("commbench", __doc__ or "")
    parser.add_argument("--workdir", metavar="DIR", help=f"also write the results to {FILE} in this folder")
    parser.add_argument(
        "--ranks", type=whole_number(1, 1024), metavar="N", help="start N ranks as threads of this process"
    )
    parser.add_argument(
        "--node",
        choices=("host", "rank"),
        default="host",
        help="rank: every rank acts as a separate node, so that one machine can measure the path between "
        "nodes",
    )
    parser.add_argument(
        "--largest",
        type=whole_number(SIZES[0], SIZES[-1]),
        default=SIZES[-1],
        metavar="B",
        help="largest message in bytes (default 64 MiB)",
    )
    parser.add_argument(
        "--repeats",
        type=whole_number(1, 1024),
        default=20,
        metavar="K",
        help="repetitions of each message; the median is reported (default 20)",
    )
    return parser
