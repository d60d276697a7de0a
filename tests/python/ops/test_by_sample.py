"""The option by_sample of the losses: nats and targets of each sample; the other results keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mudd_core import ops
from mudd_core.base.types import Array

LOSSES: dict[str, tuple[Any, dict[str, float]]] = {
    "cross_entropy": (ops.cross_entropy, {}),
    "regularized_loss": (ops.regularized_loss, {"label_smoothing": 0.2, "z": 1e-3}),
}


def inputs() -> tuple[Array, Array, Array]:
    """Return h [5, 7, 16], head [31, 16] and targets [5, 7], of which one sample has none."""
    rng = np.random.default_rng(5)
    h, head = rng.standard_normal((5, 7, 16), np.float32), rng.standard_normal((31, 16), np.float32)
    targets = rng.integers(0, 31, (5, 7), np.int32)
    targets[rng.random(targets.shape) < 0.3] = -1
    targets[3] = -1
    return h, head, targets


@pytest.mark.parametrize("name", LOSSES)
def test_each_sample_has_its_cross_entropy_and_its_targets(name: str) -> None:
    loss, options = LOSSES[name]
    h, head, targets = inputs()
    plain, found = loss(h, head, targets, **options), loss(h, head, targets, by_sample=True, **options)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one, other[:, :2] if other.shape == (5, 4) else other)
    nats, counts = found[2][:, 2], found[2][:, 3]
    assert counts.tolist() == (targets >= 0).sum(1).tolist()
    for sample in range(5):
        part = slice(sample, sample + 1)
        alone = ops.cross_entropy(h[part], head, targets[part])
        assert nats[sample] == np.float32(alone[0][0])
    whole = plain[3] if name == "regularized_loss" else plain[0]
    # five sums that are rounded to float32
    assert float(nats.sum(dtype=np.float64)) == pytest.approx(float(whole.sum()), rel=1e-6)
