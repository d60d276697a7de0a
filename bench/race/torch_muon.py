"""Muon as in nanochat/optim.py of karpathy/nanochat (commit 92d63d4, July 2026), in fp32.

The steps for the momentum of each matrix are:

- Scale its rows to equal norms (arXiv 2603.28254).
- Make it almost orthogonal with five polynomial steps (Polar Express, arXiv 2505.16932).
- Scale it to the norm of an orthogonal matrix (arXiv 2602.21545).
- Divide it by a running root mean square of its rows or columns (NorMuon, arXiv 2510.05491).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

BETA2 = 0.9
# Polar Express for five steps, safety factor 2e-2, cushion 2: x <- a x + (b (x x') + c (x x')^2) x.
COEFFICIENTS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def frobenius(x: Tensor) -> Tensor:
    """Return the Frobenius norms [K, 1, 1] of matrices [K, m, n]."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    return norms


def orthogonal(x: Tensor) -> Tensor:
    """Return matrices near the nearest orthogonal ones of [K, m, n], with Frobenius norm sqrt(min(m, n))."""
    rows = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-6)
    x = x * (frobenius(x) / (math.sqrt(x.shape[-2]) * rows))
    x = x / (1.01 * frobenius(x) + 1e-6)
    is_tall = x.shape[-2] > x.shape[-1]  # The smaller of the two Gram matrices needs less work.
    for a, b, c in COEFFICIENTS:
        gram = x.mT @ x if is_tall else x @ x.mT
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, x, factor, beta=a) if is_tall else torch.baddbmm(x, factor, x, beta=a)
    return x * (math.sqrt(min(x.shape[-2:])) / frobenius(x).clamp_min(1e-6))


def balanced(x: Tensor, squares: Tensor) -> Tensor:
    """Divide x by the root of the running mean squares and restore its norm; update `squares` in place."""
    axis = -1 if squares.shape[-1] == 1 else -2
    means = x.square().mean(dim=axis, keepdim=True)
    squares.lerp_(means, 1 - BETA2)
    scale = squares.clamp_min(1e-10).rsqrt()
    before = means.sum(dim=(-2, -1), keepdim=True).sqrt()
    after = (means * scale.square()).sum(dim=(-2, -1), keepdim=True).sqrt()
    return x * (scale * (before / after.clamp_min(1e-10)))


def updated(
    weights: Tensor,
    gradients: Tensor,
    average: Tensor,
    squares: Tensor,
    settings: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Return new weights [K, m, n]; update the two averages in place. settings: momentum, rate, decay, 0-D tensors.

    Only the weights whose sign agrees with the update decay.
    """
    momentum, rate, decay = settings
    average.lerp_(gradients, 1 - momentum)
    change = balanced(orthogonal(gradients.lerp(average, momentum)), squares)
    decays = change * weights >= 0
    return weights - rate * (change + decay * weights * decays)


class Stack:
    """Matrices of one shape, which are updated together, with their averages."""

    def __init__(self, matrices: list[nn.Parameter]) -> None:
        """Start with averages of zero. The squares are of rows, or of columns for a wide matrix."""
        self.matrices = matrices
        m, n = matrices[0].shape
        self.rate_factor = max(1.0, m / n) ** 0.5
        self.average = torch.zeros(len(matrices), m, n)
        self.squares = torch.zeros((len(matrices), m, 1) if m >= n else (len(matrices), 1, n))


class Muon:
    """The optimizer of the matrices."""

    def __init__(self, matrices: Iterable[nn.Parameter]) -> None:
        """Group the matrices by shape."""
        by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        self._stacks = [Stack(found) for found in by_shape.values()]
        self._updated = updated

    @torch.no_grad()
    def step(self, rate: float, momentum: float, decay: float) -> None:
        """Change the matrices by their gradients; a tall matrix has a higher rate."""
        for stack in self._stacks:
            weights = torch.stack([m.detach() for m in stack.matrices])
            gradients = torch.stack([m.grad for m in stack.matrices if m.grad is not None])
            settings = (torch.tensor(momentum), torch.tensor(rate * stack.rate_factor), torch.tensor(decay))
            new = self._updated(weights, gradients, stack.average, stack.squares, settings)
            torch._foreach_copy_([*stack.matrices], list(new.unbind()))

    @torch.no_grad()
    def compile(self) -> None:
        """Compile the update and warm it up on random matrices. Raise SystemExit if it differs from eager mode."""
        compiled = torch.compile(updated, dynamic=False)
        generator = torch.Generator().manual_seed(0)
        for stack in self._stacks:
            shape = stack.average.shape
            weights, gradients = (torch.randn(shape, generator=generator) for _ in range(2))
            settings = (torch.tensor(0.9), torch.tensor(0.1), torch.tensor(0.1))
            found, expected = (
                run(weights, gradients, torch.zeros(shape), torch.zeros(stack.squares.shape), settings)
                for run in (compiled, updated)
            )
            # Rounding may change which weights decay, so single elements may differ.
            if not (found - expected).norm() < 1e-2 * (expected - weights).norm():
                raise SystemExit(
                    "[race] --compile: Muon's update differs from eager mode; leave out --compile"
                )
        self._updated = compiled
