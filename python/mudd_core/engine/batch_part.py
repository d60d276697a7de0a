"""The samples and logical shards of every batch that a rank processes (contracts 2)."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.train import shards_per_run

# The place of a non-finite value that is in none of this rank's nodes.
BATCH_SUM = "the sum over the batch"


@dataclass(frozen=True)
class BatchPart:
    """Samples [first, first + samples) of a batch, split into `shards` logical shards."""

    first: int
    samples: int
    shards: int

    def by_runs(self, runs: int, rank: int, world: int) -> tuple[int, int]:
        """Return (first sample, stride from one graph run to the next) if all ranks process equal parts of each run."""
        each = self.samples // runs
        return (self.first, 0) if runs == 1 else (rank * each, world * each)

    @classmethod
    def of(cls, batch_size: int, shards: int, rank: int, world: int) -> BatchPart:
        """Return the part of rank `rank` of `world` ranks, which may be at most `batch_size`.

        If the world size divides the number of shards, a rank processes an aligned group of shards, and the sums over
        ranks continue the tree over shards. Otherwise (mesh.any_world) ranks have about equally many samples. This is
        another tree, but the same one in every run.
        """
        if shards % world == 0:
            own, first, end = shards // world, rank * shards // world, (rank + 1) * shards // world
            begin, behind = (_sample_of(shard, batch_size, shards) for shard in (first, end))
            return cls(begin, behind - begin, own)
        begin, behind = (_sample_of(r, batch_size, world) for r in (rank, rank + 1))
        own = 1
        while own * 2 <= min(batch_size // world, shards // world):
            own *= 2
        return cls(begin, behind - begin, own)


def _sample_of(part: int, batch_size: int, parts: int) -> int:
    """Return the first sample of a part; sizes differ by at most one, and the larger parts come first."""
    return part * (batch_size // parts) + min(part, batch_size % parts)


def cut_batch(
    batch_size: int, shards: int, micro_batch_size: int, part: BatchPart | None = None
) -> tuple[int, int]:
    """Return (graph runs per step, shards per run) of a rank that processes `part` of the batch; None: all of it.

    shards: maximum number of logical shards in the batch (docs/contracts.md, 2). micro_batch_size: maximum number of
    sequences in a run; 0: all sequences of the rank.
    """
    shards = min(shards, 1 << (batch_size.bit_length() - 1))
    own = part.shards if part else shards
    if micro_batch_size == 0 or micro_batch_size * shards >= own * batch_size:
        return 1, own
    if batch_size % shards:
        raise UserError(
            f"[config] train.micro_batch_size: expected shards of equal size, but {batch_size} "
            f"sequences are not divisible by {shards}"
        )
    per_run = shards_per_run(batch_size, shards, micro_batch_size)
    return own // per_run, per_run
