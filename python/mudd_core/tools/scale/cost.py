"""The time of a step on several nodes, by formula: docs/scale.md, 2.

The exchange as it is built: the sum of gradients hides behind the last backward pass, the gather of new weights behind
the next step's first forward pass. The table of the vocabulary is finished last and read first: nothing hides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GRADIENT_BYTES = 4  # of a weight, between nodes
WEIGHT_BYTES = 4  # as the gather moves them, in bf16 runs too
BACKWARD = 2 / 3  # of the time of a step
HIDDEN_UP_TO = 0.6  # communication over computation that a backward pass covers
_TOTALS_BYTES = 8 / 4096  # of a weight: a double for each block of the norm


@dataclass(frozen=True)
class Network:
    """What joins the nodes. latency: seconds of a message. bandwidth: bytes a second of a node, each way."""

    name: str
    latency: float
    bandwidth: float

    def rounds(self, nodes: int, count: float) -> float:
        """Seconds of a reduce-scatter or all-gather of `count` bytes a node."""
        return math.ceil(math.log2(nodes)) * self.latency + (nodes - 1) / nodes * count / self.bandwidth


@dataclass(frozen=True)
class Training:
    """What the formulas need of a model and its step; counts of one node.

    weights: those that train. last: of them, in the gradient that is finished last. flops: of a token. runs: of a
    rank's graph in a step; messages go beside the last one's backward and the first one's forward pass.
    """

    weights: int
    last: int
    flops: float
    runs: int = 1


@dataclass(frozen=True)
class Step:
    """Seconds of a step by part. sums, gather, totals: whole; exposed: what computation does not cover."""

    compute: float
    sums: float
    gather: float
    totals: float
    exposed: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.compute + self.exposed

    @property
    def share(self) -> float:
        """Exposed part of the step."""
        return self.exposed / self.seconds


def step(training: Training, tokens: float, speed: float, network: Network, nodes: int) -> Step:
    """The step of `nodes` nodes. tokens: of a node in a step. speed: FLOP/s of a node in such a step."""
    compute = training.flops * tokens / speed
    if nodes == 1:
        return Step(compute, 0.0, 0.0, 0.0, 0.0)
    sums = network.rounds(nodes, GRADIENT_BYTES * training.weights)
    tail = network.rounds(nodes, GRADIENT_BYTES * training.last)
    gather = network.rounds(nodes, WEIGHT_BYTES * training.weights)
    totals = network.rounds(nodes, _TOTALS_BYTES * training.weights)
    backward = BACKWARD * compute / training.runs
    forward = (1 - BACKWARD) * compute / training.runs
    exposed = max(sums - backward, tail) + totals + max(gather - forward, tail)
    return Step(compute, sums, gather, totals, exposed)


def ratio(training: Training, tokens: float, speed: float, network: Network) -> float:
    """Communication over computation of data parallel training on many nodes; the size of a model cancels."""
    sent = (GRADIENT_BYTES + WEIGHT_BYTES) * training.weights / network.bandwidth
    return sent * speed / (training.flops * tokens)


def least_tokens(training: Training, speed: float, network: Network) -> float:
    """Tokens of a node and step that make the ratio HIDDEN_UP_TO."""
    return ratio(training, 1, speed, network) / HIDDEN_UP_TO
