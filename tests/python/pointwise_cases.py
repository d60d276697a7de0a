"""The activations of jax.nn that are separate ops, with torch's results in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mudd_core.config.families.mup import POINTWISE
from op_case import Case, normal

ORACLES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "log_sigmoid": F.logsigmoid,
    "soft_sign": F.softsign,
    "leaky_relu": F.leaky_relu,
    "hard_sigmoid": F.hardsigmoid,
    "hard_silu": F.hardswish,
    "hard_tanh": F.hardtanh,
    "elu": F.elu,
    "selu": F.selu,
    "squareplus": lambda x: (x + (x * x + 4).sqrt()) / 2,
    "mish": F.mish,
    "sparse_plus": lambda x: torch.where(x >= 1, x, (x.clamp(-1, 1) + 1) ** 2 / 4),
    "sparse_sigmoid": lambda x: ((x + 1) / 2).clamp(0, 1),
}


def pointwise_cases() -> list[Case]:
    """Return a case for each activation, with values on both sides of every kink."""
    x = 3 * normal(3, 4, 33)
    return [_case(name, x) for name in POINTWISE]


def _case(name: str, x: Any) -> Case:
    oracle = ORACLES[name]

    def forward(x: Any) -> Any:
        return oracle(torch.tensor(np.asarray(x, np.float64))).numpy()

    def backward(dy: Any, x: Any) -> Any:
        leaf = torch.tensor(np.asarray(x, np.float64), requires_grad=True)
        oracle(leaf).backward(torch.tensor(np.asarray(dy, np.float64)))
        assert leaf.grad is not None
        return (leaf.grad.numpy(),)

    return Case("activation", [x], {"activation": name}, forward, backward)
