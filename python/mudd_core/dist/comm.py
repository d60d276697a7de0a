"""A rank's end of a run: who else there is, and bytes to and from them."""

from __future__ import annotations

from mudd_core import _core


class Comm:
    """All ranks make the same collective calls in the same order, each from one thread at a time.

    core: the Comm of the C++ core.
    """

    def __init__(self, core: _core.Comm) -> None:
        self.core = core
        self.rank, self.world = int(core.rank), int(core.world)
        self.node, self.nodes = int(core.node), int(core.nodes)
        self.node_rank, self.node_size = int(core.node_rank), int(core.node_size)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.core.barrier()

    def all_gather(self, mine: bytes) -> list[bytes]:
        """The bytes of every rank, in rank order; they may differ in length."""
        lengths = [int.from_bytes(n, "little") for n in self.core.all_gather(len(mine).to_bytes(8, "little"))]
        most = max(lengths)
        return [
            data[:n] for data, n in zip(self.core.all_gather(mine.ljust(most, b"\0")), lengths, strict=True)
        ]

    def broadcast(self, data: bytes, root: int = 0) -> bytes:
        """The bytes of rank `root`; what others give is not looked at."""
        length = int.from_bytes(self.core.broadcast(len(data).to_bytes(8, "little"), root), "little")
        return bytes(self.core.broadcast(data if self.rank == root else bytes(length), root))

    def fail(self, code: int, message: str) -> None:
        """Ends the whole job with this exit code; ranks that wait get RuntimeError."""
        self.core.fail(code, message)


def threads(world: int, node_size: int | None = None) -> list[Comm]:
    """Ranks as threads of this process, `node_size` of them a node (all by default); each Comm is one thread's."""
    return [Comm(core) for core in _core.thread_ranks(world, node_size or world)]


def alone() -> Comm:
    """The only rank of a run."""
    return threads(1)[0]
