"""Which samples and logical shards of every batch a rank takes (contracts 2)."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError


@dataclass(frozen=True)
class BatchPart:
    """Samples [first, first + samples) of a batch, cut into `shards` logical shards."""

    first: int
    samples: int
    shards: int

    @classmethod
    def of(cls, batch_size: int, shards: int, rank: int, world: int) -> BatchPart:
        """Of rank `rank` of `world`: its aligned share of the batch's shards.

        The world divides the shards: then the sums over ranks go on with the tree over shards. UserError otherwise.
        """
        if shards % world:
            raise UserError(
                f"[mesh] {world} ranks do not divide train.logical_shards={shards}: start "
                f"{_worlds(shards)}, or set mesh.any_world=true (bits then depend on the world)"
            )
        own = shards // world
        first = _sample_of(rank * own, batch_size, shards)
        return cls(first, _sample_of((rank + 1) * own, batch_size, shards) - first, own)

    @classmethod
    def of_any(cls, batch_size: int, shards: int, rank: int, world: int) -> BatchPart:
        """As `of` for any world up to the batch: about as many samples for each rank, in shards of about one size."""
        if world > batch_size:
            raise UserError(
                f"[mesh] {world} ranks for train.batch_size={batch_size} sequences: start at most {batch_size}"
            )
        first, end = (_sample_of(r, batch_size, world) for r in (rank, rank + 1))
        own = 1
        while own * 2 <= min(batch_size // world, max(1, shards // world)):
            own *= 2
        return cls(first, end - first, own)


def _sample_of(part: int, batch_size: int, parts: int) -> int:
    """First sample of a part; sizes differ by at most one, the larger ones first."""
    return part * (batch_size // parts) + min(part, batch_size % parts)


def _worlds(shards: int) -> str:
    worlds = [str(1 << power) for power in range(shards.bit_length()) if 1 << power <= shards]
    return worlds[0] if len(worlds) == 1 else f"{', '.join(worlds[:-1])} or {worlds[-1]}"
