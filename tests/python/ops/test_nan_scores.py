"""A NaN among the scores of attention reaches all gradients of its row, whatever sign the CPU gives to it."""

from __future__ import annotations

import numpy as np
import pytest

from mudd_core import ops


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_nan_reaches_the_gradients_of_its_row(sign: float) -> None:
    rng = np.random.default_rng(7)
    q, k, v, dy = (rng.standard_normal((1, 6, 8), dtype=np.float32) for _ in range(4))
    q[0, 2] = np.copysign(np.float32(np.nan), np.float32(sign))
    options = {"n_head": 1, "n_kv_head": 1, "causal": True}

    dq, dk, dv = ops.attention_backward([dy], q, k, v, **options)[:3]

    assert dq is not None and dk is not None and dv is not None
    assert np.isnan(dq[0, 2]).all() and np.isfinite(np.delete(dq, 2, axis=1)).all()
    for gradient in (dk, dv):  # query 2 sees the keys 0 to 2
        assert np.isnan(gradient[0, :3]).all() and np.isfinite(gradient[0, 3:]).all()
