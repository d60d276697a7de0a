"""Cases of regularized_loss: label smoothing as in PyTorch in float64, and a z-loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from op_case import Case, integers, normal
from reference import numpy_ops as ref


def regularized_case(label_smoothing: float, z: float, *, biased: bool = False) -> Case:
    """Return a loss of 2 x 9 positions over 37 tokens."""
    h, head, bias = normal(2, 9, 16), normal(37, 16), normal(37) if biased else None
    targets = integers(37, 2, 9)
    targets[0, 3:5] = -100

    def losses(leaves: Any, targets: Any) -> tuple[Any, Any]:
        """Return the summed loss and the summed cross entropy of PyTorch."""
        h, head, b = leaves
        logits = h.reshape(-1, 16) @ head.T + (0 if b is None else b)
        t = torch.tensor(targets.reshape(-1)).long()
        plain = torch.nn.functional.cross_entropy(logits, t, reduction="sum")
        smooth = torch.nn.functional.cross_entropy(
            logits, t, reduction="sum", label_smoothing=label_smoothing
        )
        return smooth + z * (logits.logsumexp(-1) ** 2 * (t >= 0)).sum(), plain

    def leaves_of(*arrays: Any) -> list[Any]:
        return [
            None if a is None else torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays
        ]

    def forward(h: Any, head: Any, t: Any, b: Any) -> Any:
        loss, plain = losses(leaves_of(h, head, b), t)
        logits = ref.f64(h).reshape(-1, 16) @ ref.f64(head).T + (0 if b is None else b)
        hits = ((logits.argmax(-1).reshape(t.shape) == t) & (t >= 0)).sum(-1)
        guessed = np.stack([hits, hits / np.maximum(1, (t >= 0).sum(-1))], -1)
        return np.array([loss.item()]), np.array([float((t >= 0).sum())]), guessed, np.array([plain.item()])

    def backward(dloss: Any, h: Any, head: Any, t: Any, b: Any) -> Any:
        leaves = leaves_of(h, head, b)
        losses(leaves, t)[0].backward()
        dh, dhead, db = (None if leaf is None else leaf.grad.numpy() for leaf in leaves)
        return dh, dhead, None, db

    options = {"label_smoothing": label_smoothing, "z": z}
    return Case("regularized_loss", [h, head, targets, bias], options, forward, backward)


def regularized_cases() -> list[Case]:
    """Return all cases."""
    return [
        regularized_case(0.1, 0.0),
        regularized_case(0.0, 1e-2, biased=True),
        regularized_case(0.9, 0.3),
    ]
