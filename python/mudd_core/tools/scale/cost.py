"""The time of a step on several nodes, and the bytes that each axis of a mesh moves between them, by formula.

docs/scale.md, 2 and 3, derives the formulas.

The sum of gradients overlaps with the last backward pass, and the gather of new weights with the next step's first
forward pass. The embedding table is finished last and read first, so its messages overlap with nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GRADIENT_BYTES = 4  # bytes of a gradient element that nodes exchange, unless mesh.wire=bf16
WEIGHT_BYTES = 4  # bytes of a weight that a gather moves, in bf16 runs too
BACKWARD = 2 / 3  # fraction of a step's time that the backward pass needs
HIDDEN_UP_TO = 0.6  # largest ratio of communication time to computation time that a backward pass can hide
EXPERTS, STAGES, CONTEXT, TENSOR = 8, 4, 8, 4  # nodes in a group, for each mesh axis
MICRO_BATCHES = 8  # micro-batches in a step of a pipeline
_STREAM = 4  # bytes of an element of the residual stream
_TOTALS_BYTES = 8 / 4096  # bytes per weight: one double for each block of the norm


@dataclass(frozen=True)
class Network:
    """The network between nodes. latency: seconds per message. bandwidth: bytes/s of a node in each direction."""

    name: str
    latency: float
    bandwidth: float

    def rounds(self, nodes: int, count: float) -> float:
        """Return the seconds of a reduce-scatter or all-gather of `count` bytes per node."""
        return math.ceil(math.log2(nodes)) * self.latency + (nodes - 1) / nodes * count / self.bandwidth


@dataclass(frozen=True)
class Training:
    """The inputs of the formulas: the model and its step on one node.

    weights: trained parameters. last: parameters of the gradient that is finished last. flops: FLOPs per token. runs:
    micro-batches of a rank; messages overlap with the last backward and the first forward pass. experts: parameters in
    experts. rows: bytes that are sent for a token's experts in all layers, both ways in both passes. passes,
    expert_passes: bytes of dense and expert weights that the forward and the backward pass gather (mesh.zero=3).
    layers: number of layers.
    """

    weights: int
    last: int
    flops: float
    runs: int = 1
    experts: int = 0
    rows: float = 0.0
    passes: tuple[float, float] = (0.0, 0.0)
    expert_passes: tuple[float, float] = (0.0, 0.0)
    layers: int = 0


@dataclass(frozen=True)
class Layout:
    """The mesh. ranks: the ranks per node. expert: mesh.expert. zero: mesh.zero. gradient: bytes of a gradient that
    nodes exchange.
    """

    zero: int = 1
    expert: int = 1
    ranks: int = 1
    gradient: int = GRADIENT_BYTES

    def group(self, nodes: int) -> int:
        """Return the number of nodes over which a group of expert ranks extends."""
        return min(nodes, max(1, self.expert // self.ranks))


@dataclass(frozen=True)
class Wire:
    """The bytes that a node sends in a step, by purpose, as `comm.counters()` reports them."""

    sums: float
    gathers: float
    exchange: float


def wire(training: Training, tokens: float, nodes: int, layout: Layout = Layout()) -> Wire:
    """Return the bytes that a node with `tokens` tokens in a step sends. Embedding gradients are dense."""
    cut = (nodes - 1) / nodes
    dealt = training.experts if layout.expert > 1 else 0
    dense = training.weights - dealt
    if layout.zero == 3:
        passes = sum(training.passes) + (0.0 if dealt else sum(training.expert_passes))
        sums, gathers = training.runs * layout.gradient * dense * cut, training.runs * passes * cut
    else:
        sums, gathers = layout.gradient * dense * cut, WEIGHT_BYTES * dense * cut
    group = layout.group(nodes)
    # Only ranks of other groups have the same experts.
    held = dealt * min(1.0, layout.ranks / layout.expert)
    others = 1 - group / nodes
    rows = training.rows * tokens * (group - 1) / group if dealt else 0.0
    turns = training.runs if layout.zero == 3 else 1
    return Wire(sums + turns * layout.gradient * held * others, gathers + WEIGHT_BYTES * held * others, rows)


@dataclass(frozen=True)
class Step:
    """Seconds of a step by part.

    sums, gather, exchange, totals: the whole times. exposed: the part that does not overlap with computation.
    """

    compute: float
    sums: float
    gather: float
    totals: float
    exposed: float
    exchange: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the time of the whole step."""
        return self.compute + self.exposed

    @property
    def share(self) -> float:
        """Return the exposed fraction of the step."""
        return self.exposed / self.seconds


# messages that a layer of experts waits for in a graph run: one with the counts, and two in each direction
_ROUNDS = 5


def step(
    training: Training, tokens: float, speed: float, network: Network, nodes: int, layout: Layout = Layout()
) -> Step:
    """Return the step of `nodes` nodes. tokens: tokens of a node in a step. speed: FLOP/s of a node in such a step."""
    compute = training.flops * tokens / speed
    if nodes == 1:
        return Step(compute, 0.0, 0.0, 0.0, 0.0)
    sent, rounds = wire(training, tokens, nodes, layout), math.ceil(math.log2(nodes)) * network.latency
    head = network.rounds(nodes, WEIGHT_BYTES * training.last)
    tail = network.rounds(nodes, layout.gradient * training.last)
    totals = network.rounds(nodes, _TOTALS_BYTES * training.weights)
    backward, forward = BACKWARD * compute / training.runs, (1 - BACKWARD) * compute / training.runs
    exchange = 0.0
    if layout.group(nodes) > 1:
        exchange = (
            sent.exchange / network.bandwidth + _ROUNDS * training.layers * training.runs * network.latency
        )
    if layout.zero == 3:
        each = training.runs * 2 * (training.layers + 2) * rounds  # each layer is a separate gather
        sums = training.runs * rounds + sent.sums / network.bandwidth
        gather = each + sent.gathers / network.bandwidth
        part = training.passes[0] / max(1.0, sum(training.passes))
        first, second = gather * part / training.runs, (gather * (1 - part) + sums) / training.runs
        waits = max(first - forward, head) + max(second - backward, tail)
        return Step(compute, sums, gather, totals, training.runs * waits + totals + exchange, exchange)
    sums, gather = rounds + sent.sums / network.bandwidth, rounds + sent.gathers / network.bandwidth
    exposed = max(sums - backward, tail) + totals + max(gather - forward, head) + exchange
    return Step(compute, sums, gather, totals, exposed, exchange)


def ratio(
    training: Training, tokens: float, speed: float, network: Network, layout: Layout = Layout()
) -> float:
    """Return communication over computation for data-parallel training on many nodes; the model size cancels out."""
    sent = (layout.gradient + WEIGHT_BYTES) * training.weights / network.bandwidth
    return sent * speed / (training.flops * tokens)


def least_tokens(training: Training, speed: float, network: Network, layout: Layout = Layout()) -> float:
    """Return the tokens per node and step at which the ratio is HIDDEN_UP_TO."""
    return ratio(training, 1, speed, network, layout) / HIDDEN_UP_TO


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that mesh axes shard.

    experts: parameters in experts. chosen: experts per token in each layer. key_width: the width of all key heads.
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
    """A mesh axis. ratio: seconds of communication over seconds of computation. hidden: both can overlap."""

    name: str
    built: bool
    ratio: float
    hidden: bool = True


def axes(
    shape: Shape, tokens: float, speed: float, network: Network, layout: Layout = Layout()
) -> list[Axis]:
    """Return the axes that apply to a model on many nodes, with `tokens` tokens per step and one rank per node."""
    compute = shape.flops * tokens / speed
    across = 1 / (network.bandwidth * compute)  # fraction of the computation time per byte

    def cut(count: int) -> float:
        return (count - 1) / count

    whole = (layout.gradient + WEIGHT_BYTES) * shape.weights
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
    """Return the idle fraction of a pipeline."""
    return (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
