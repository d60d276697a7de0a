"""What goes into a model function and what comes out, the same for every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mudd_core import ops


@dataclass(frozen=True)
class Batch:
    """Token ids [B, T] and optional arrays beside them (contracts 14). Without those, ops take a cheaper path.

    inputs: int32 ids. targets: int32 ids, negative = ignored. positions: int32, 0..T-1 where absent. segments: int32,
    attention stays inside one; 0 = padding. key_mask: int32 0/1, keys that may be seen. known_positions: those that
    rotations know, where a ring of keys takes more tokens than max_seq_len.
    """

    inputs: Any
    targets: Any = None
    positions: Any = None
    segments: Any = None
    key_mask: Any = None
    known_positions: Any = 0  # an int; Any, as batches come as dicts of arrays

    def max_positions(self, config: Any) -> int:
        """Positions that rotations are to know in a model of this config."""
        return max(int(self.known_positions), int(config.max_seq_len))


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far: per layer k and v [B, G, Tmax, hd], written in place.

    ring: a token behind Tmax others takes the place of the oldest one.
    """

    k: list[Any]
    v: list[Any]
    ring: bool = False


@dataclass(frozen=True)
class Aux:
    """Auxiliary losses, computed from statistics of the layers (the routers of a mixture of experts).

    metrics: one value [B, W] per layer, sums over each sample; the metrics show them too. options: of ops.moe_balance.
    """

    metrics: list[Any]
    options: dict[str, Any]

    def loss(self, targets: Any) -> Any:
        """Summed nats per shard, float64 [S], which training adds to the summed loss of the tokens."""
        return ops.moe_balance(targets, *self.metrics, **self.options)[0]


@dataclass(frozen=True)
class Hidden:
    """The final normalised states h [B, T, D] and the head [V, D]; losses or logits are made from it.

    aux: further losses, or None. bias: of the logits [V], or None.
    """

    h: Any
    head: Any
    aux: Aux | None = None
    bias: Any = None

    def loss(self, targets: Any) -> tuple[Any, Any, Any]:
        """Summed nats and counted targets per shard, float64 [S] each, and the guessed ones (ops.cross_entropy)."""
        loss, count, guessed = ops.cross_entropy(self.h, self.head, targets, self.bias)
        return loss, count, guessed

    def logits(self) -> Any:
        """All logits [B, T, V]."""
        return ops.linear(self.h, self.head, self.bias, transposed=True, full_precision=True)
