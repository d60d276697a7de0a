"""Results of a PyTorch model for the tests: loss and gradients, steps of AdamW, greedy tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reference.torch_models import Array, Batch, Config, Params, make_batch, model_logits


class Result(NamedTuple):
    """Logits [B, T, V], mean loss over the counted targets, and gradient of that mean by parameter name."""

    logits: Array
    loss: float
    grads: dict[str, Array]


def training_loss(p: Params, batch: Batch, targets: Tensor, cfg: Config) -> tuple[Tensor, Tensor]:
    """Return (logits, mean loss with the auxiliary losses)."""
    if hasattr(cfg, "aux_loss"):  # a mixture of experts
        logits, routings = cfg.route(p, batch)
        return logits, mean_loss(logits, targets) + cfg.aux_loss(routings, batch)
    logits = model_logits(p, batch, cfg)
    return logits, mean_loss(logits, targets)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over targets >= 0; negative targets are ignored."""
    flat = targets.reshape(-1)
    flat = torch.where(flat < 0, torch.full_like(flat, -100), flat)
    return F.cross_entropy(logits.reshape(flat.numel(), -1), flat, ignore_index=-100)


def loss_and_grads(
    params: dict[str, Array],
    tokens: Array,
    targets: Array,
    cfg: Config,
    *,
    positions: Array | None = None,
    segments: Array | None = None,
    key_mask: Array | None = None,
    dtype: torch.dtype = torch.float32,
) -> Result:
    """Run one forward and backward pass with autograd in `dtype` (float32, or float64 for a more exact reference)."""
    p = {k: torch.tensor(np.asarray(v), dtype=dtype, requires_grad=True) for k, v in params.items()}
    batch = make_batch(tokens, positions, segments, key_mask)
    logits, loss = training_loss(
        p, batch, torch.from_numpy(np.ascontiguousarray(targets, dtype=np.int64)), cfg
    )
    loss.backward()  # type: ignore[no-untyped-call]
    grads = {k: np.zeros(t.shape) if t.grad is None else t.grad.numpy() for k, t in p.items()}
    return Result(logits.detach().numpy(), float(loss.detach()), grads)


def adamw_steps(
    params: dict[str, Array],
    batches: list[tuple[Array, Array]],
    cfg: Config,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
    clip: float = 1.0,
    decayed: set[str] | None = None,
) -> tuple[dict[str, Array], list[float], list[float]]:
    """Run steps of torch.optim.AdamW, one per (tokens, targets).

    Return (parameters, losses, grad norms before clipping). `decayed` lists the parameters with decay; default: all
    with two or more dimensions. clip 0 is off.
    """
    p = {k: torch.tensor(np.asarray(v), dtype=torch.float32, requires_grad=True) for k, v in params.items()}
    decayed = {k for k, t in p.items() if t.dim() >= 2} if decayed is None else decayed
    groups = [
        {"params": [t for k, t in p.items() if k in decayed], "weight_decay": weight_decay},
        {"params": [t for k, t in p.items() if k not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps)
    losses, norms = [], []
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        _, loss = training_loss(p, make_batch(tokens), torch.from_numpy(targets.astype(np.int64)), cfg)
        loss.backward()  # type: ignore[no-untyped-call]
        norms.append(float(torch.nn.utils.clip_grad_norm_(p.values(), clip if clip > 0 else math.inf)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return {k: t.detach().numpy() for k, t in p.items()}, losses, norms


def greedy(params: dict[str, Array], prompt: Array, count: int, cfg: Config) -> Array:
    """Return a continuation [B, count] by full forward passes, the largest logit each time. prompt [B, T0]."""
    p = {k: torch.tensor(np.asarray(v), dtype=torch.float32) for k, v in params.items()}
    ids = torch.from_numpy(np.ascontiguousarray(prompt, dtype=np.int64))
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model_logits(p, Batch(ids), cfg)[:, -1:].argmax(-1)], 1)
    return ids[:, prompt.shape[1] :].numpy()
