"""What each axis of a mesh would move between nodes, over the time of computation: docs/scale.md, 3."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.tools.scale.cost import Network

EXPERTS, STAGES, CONTEXT, TENSOR = 8, 4, 8, 4  # nodes of a group of each axis
MICRO_BATCHES = 8  # of a pipeline
_STREAM = 4  # bytes of a number of the residual stream


@dataclass(frozen=True)
class Shape:
    """What the axes cut.

    experts: weights in experts, of `chosen` a token in each layer; key_width: of all key heads.
    """

    weights: int
    flops: float
    width: int
    layers: int
    key_width: int
    experts: int = 0
    chosen: int = 0


@dataclass(frozen=True)
class Axis:
    """A row: seconds of communication over those of computation, and what of it is always exposed."""

    name: str
    built: bool
    ratio: float
    hidden: bool = True


def axes(shape: Shape, tokens: float, speed: float, network: Network) -> list[Axis]:
    """The axes that apply to a model, for nodes of `tokens` a step, one rank each; many nodes."""
    compute = shape.flops * tokens / speed
    across = 1 / (network.bandwidth * compute)  # share of the computation for a byte

    def cut(count: int) -> float:
        return (count - 1) / count

    whole = 8 * shape.weights
    rows = [
        Axis("data, zero 1", True, whole * across),
        Axis("data, zero 3", True, 12 * shape.weights * across),
    ]
    if shape.experts:
        dense = shape.weights - shape.experts
        moved = 4 * tokens * shape.chosen * shape.width * _STREAM * shape.layers * cut(EXPERTS)
        rows.append(
            Axis(
                f"expert {EXPERTS}",
                True,
                (moved + 8 * (dense + shape.experts / EXPERTS)) * across,
                hidden=False,
            )
        )
    borders = 2 * STAGES * tokens * shape.width * _STREAM
    rows.append(Axis(f"pipeline {STAGES}", False, (borders + whole / STAGES) * across))
    keys = 2 * tokens * CONTEXT * shape.key_width * 12 * shape.layers * cut(CONTEXT)
    rows.append(Axis(f"context {CONTEXT}", False, (keys + whole) * across))
    columns = 8 * TENSOR * tokens * shape.width * _STREAM * cut(TENSOR) * shape.layers
    rows.append(Axis(f"tensor {TENSOR}", False, (columns + whole / TENSOR) * across, hidden=False))
    return rows


def bubble() -> float:
    """Idle share of a pipeline."""
    return (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
