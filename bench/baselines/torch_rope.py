"""Rotary positions of the PyTorch baselines, in half layout."""

from __future__ import annotations

import torch
from torch import Tensor

from shapes import Shape


def angles(s: Shape, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Return cos, sin [T, d/2] in the default dtype."""
    half = s.D // s.H // 2
    angle = torch.arange(s.T)[:, None] * base ** (-torch.arange(half) / half)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE to x [B, H, T, d]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
