"""PyTorch hooks on the values inside a reference model, which Model.capture and Model.patch are compared with.

Each value passes through a module of its name, an identity with a forward hook; `retain_grad` keeps its gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from reference.torch_models import Array, Config, make_batch
from reference.torch_training import training_loss

LOGITS = "logits"


class Point(nn.Module):
    """An identity whose output is a new tensor, which only later ops read."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a view of x."""
        return x.view_as(x)


class Hooked(NamedTuple):
    """Values and their gradients by name, including the gradients of parameters; and the mean loss."""

    values: dict[str, Array]
    gradients: dict[str, Array]
    loss: float


class Hooks:
    """Modules by the names of values, created on first use; replaced: by name, functions of an array."""

    def __init__(self, replaced: Mapping[str, Callable[[Array], Array]]) -> None:
        self.replaced = replaced
        self.points: dict[str, Point] = {}
        self.values: dict[str, Tensor] = {}

    def named(self, name: str, value: Tensor) -> Tensor:
        """Pass the value through its module."""
        if name not in self.points:
            self.points[name] = Point()
            self.points[name].register_forward_hook(lambda _module, _given, out: self.hook(name, out))
        made: Tensor = self.points[name](value)
        return made

    def hook(self, name: str, out: Tensor) -> Tensor:
        """Replace the output if a replacement is set, and keep it with its gradient; this is the forward hook."""
        if name in self.replaced:
            out = torch.from_numpy(np.array(self.replaced[name](out.detach().numpy())))
        if out.requires_grad:
            out.retain_grad()
        self.values[name] = out
        return out


def hooked(
    params: Mapping[str, Array],
    batch: Mapping[str, Array],
    cfg: Config,
    *,
    replaced: Mapping[str, Callable[[Array], Array]] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Hooked:
    """Run a forward pass, and a backward pass unless a value is replaced. batch: inputs, targets, optional arrays."""
    p: dict[str, Any] = {
        k: torch.tensor(np.asarray(v), dtype=dtype, requires_grad=True) for k, v in params.items()
    }
    hooks = Hooks(replaced or {})
    given = make_batch(batch["inputs"], *(batch.get(name) for name in ("positions", "segments", "key_mask")))
    targets = torch.from_numpy(np.ascontiguousarray(batch["targets"], np.int64))
    logits, loss = training_loss(p, dataclasses.replace(given, named=hooks.named), targets, cfg)
    hooks.values[LOGITS] = logits
    gradients: dict[str, Array] = {}
    if not hooks.replaced:
        logits.retain_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        found = {**p, **hooks.values}
        gradients = {
            name: np.zeros(t.shape) if t.grad is None else t.grad.numpy()
            for name, t in found.items()
            if t.dtype == dtype
        }
    values = {name: t.detach().numpy() for name, t in hooks.values.items()}
    return Hooked(values, gradients, float(loss.detach()))
