"""Ids to rows, positions into rows."""

from __future__ import annotations

from typing import Any

from mudd_core.ops.call import apply, backward


def embedding(
    ids: Any, table: Any, residual: Any = None, *, positions: bool = False, sinusoids: int = 0
) -> Any:
    """y = table[ids] (+ residual). ids int32 [B, T], table [V, D]. positions: no ids, the row of a token is its t.

    sinusoids: no table, but this many rows of sines and cosines (Vaswani et al. 2017) as wide as the residual: row p
    holds sin(p w) then cos(p w), w from 1 down to 1/10000 in equal ratios.
    """
    return apply("embedding", [ids, table, residual], positions=positions, sinusoids=sinusoids)


def embedding_backward(
    dy: Any, ids: Any, table: Any, residual: Any = None, *, positions: bool = False, sinusoids: int = 0
) -> Any:
    """Gradients (None, dtable, dresidual) of embedding."""
    return backward("embedding", dy, [ids, table, residual], positions=positions, sinusoids=sinusoids)


def rope(
    x: Any,
    positions: Any = None,
    *,
    n_head: int,
    base: float = 10000.0,
    fraction: float = 1.0,
    max_positions: int = 0,
) -> Any:
    """Rotary positions in the half layout (Su et al. 2021): x [B, T, H*hd], positions int32 [B, T] or 0..T-1.

    fraction: part of each head that is rotated. max_positions: largest position + 1; 0 = T.
    """
    return apply(
        "rope", [x, positions], n_head=n_head, base=base, fraction=fraction, max_positions=max_positions
    )


def rope_backward(
    dy: Any,
    x: Any,
    positions: Any = None,
    *,
    n_head: int,
    base: float = 10000.0,
    fraction: float = 1.0,
    max_positions: int = 0,
) -> Any:
    """Gradients (dx, None) of rope."""
    return backward(
        "rope", dy, [x, positions], n_head=n_head, base=base, fraction=fraction, max_positions=max_positions
    )
