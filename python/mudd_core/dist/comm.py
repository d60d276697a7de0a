"""Communication of one rank with the other ranks of a run."""

from __future__ import annotations

import sys
from pathlib import Path

from mudd_core import _core

_HERE = str(Path(__file__).parent)
# Longest message between hosts; tests set less.
LONGEST_MESSAGE = 1 << 30


class Comm:
    """The collective calls of a rank. All ranks make the same calls in the same order, each from one thread at a time.

    core: the Comm of the C++ core. debug: ranks compare the places of their calls, and raise RuntimeError with both
    places if they differ.
    """

    def __init__(self, core: _core.Comm, debug: bool = False) -> None:
        self.core = core
        self._debug = debug
        self.rank, self.world = int(core.rank), int(core.world)
        self._find_node()

    def _find_node(self) -> None:
        self.node, self.nodes = int(self.core.node), int(self.core.nodes)
        self.node_rank, self.node_size = int(self.core.node_rank), int(self.core.node_size)

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.core.barrier(self._site())

    def all_gather(self, mine: bytes) -> list[bytes]:
        """Return the bytes of every rank, in rank order; their lengths may differ."""
        site = self._site()
        sizes = self.core.all_gather(len(mine).to_bytes(8, "little"), site)
        lengths = [int.from_bytes(n, "little") for n in sizes]
        padded = self.core.all_gather(mine.ljust(max(lengths), b"\0"), site)
        return [data[:n] for data, n in zip(padded, lengths, strict=True)]

    def broadcast(self, data: bytes, root: int = 0) -> bytes:
        """Return the bytes of rank `root`; the data of other ranks is ignored."""
        site = self._site()
        length = int.from_bytes(self.core.broadcast(len(data).to_bytes(8, "little"), root, site), "little")
        return bytes(self.core.broadcast(data if self.rank == root else bytes(length), root, site))

    def set_phase(self, phase: str, step: int) -> None:
        """Set the current phase of this rank (mudd::dist::Phase), for messages of other ranks and as a heartbeat."""
        self.core.set_phase(phase, step)

    def watch(self, seconds: float) -> None:
        """End the job with exit code 70 if a rank of this host makes no set_phase call for this time; 0: never."""
        self.core.watch(seconds)

    def fail(self, code: int, message: str) -> None:
        """End the whole job with this exit code; waiting ranks raise PeerError.

        If ranks are processes, print the message once and do not return.
        """
        self.core.fail(code, message)

    def close(self, patience: float = 0.0) -> bool:
        """Leave the job after all files are closed; this must be the last call on every rank.

        patience: seconds to wait for the other ranks, 0 = without limit. Return True if they arrived; False after a
        failure.
        """
        return bool(self.core.close(patience))

    @property
    def shared_bytes_free(self) -> int:
        """Bytes of shared memory that the ranks of this host may still allocate."""
        return int(self.core.shared_bytes_free)

    def split_nodes(self) -> None:
        """Treat each rank as a separate host, so that ranks exchange messages and not memory. All ranks call it."""
        self.core.split_nodes()
        self._find_node()

    def expert_group(self, ranks: int, room: float = 0.0) -> _core.ExpertGroup:
        """Return the group of `ranks` neighbours, including this rank, among which the experts are sharded.

        room: see mesh.expert_room.
        """
        return _core.ExpertGroup(self.core, ranks, room)

    def counters(self) -> dict[str, tuple[int, int]]:
        """Return (messages, bytes) sent by this rank between hosts, by purpose: control, sum, gather, exchange.

        exchange: the tokens for experts, also inside a host.
        """
        return dict(self.core.counters())

    def _site(self) -> tuple[str, int]:
        """Return file and line of the caller outside this package, for debug mode."""
        if not self._debug:
            return "", 0
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno


def threads(
    world: int,
    node_size: int | None = None,
    *,
    debug: bool = False,
    hang_timeout: float = 0.0,
    longest_message: int = LONGEST_MESSAGE,
) -> list[Comm]:
    """Return the ranks of a run as threads of this process, one Comm per thread.

    node_size: ranks per host; default: all. hang_timeout: seconds without a sign of life until all waiting ranks raise
    PeerError; 0: never.
    """
    cores = _core.thread_ranks(world, node_size or world, debug, hang_timeout, longest_message)
    return [Comm(core, debug) for core in cores]


def alone() -> Comm:
    """Return the only rank of a run."""
    return threads(1)[0]
