"""Calls of rms_norm and layer_norm, with the float64 formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case, normal
from reference import numpy_ops as ref


def by_heads(dy: Any, x: Any, gain: Any, heads: int) -> Any:
    """Return the backward of rms_norm over each head alone."""
    pieces = (*x.shape[:-1], heads, x.shape[-1] // heads)
    dx, dgain = ref.rms_norm_backward(dy.reshape(pieces), x.reshape(pieces), gain)
    return dx.reshape(x.shape), dgain


def norm_cases() -> list[Case]:
    x, gain, bias = normal(3, 5, 19), normal(19), normal(19)
    ones, zeros = np.ones(19), np.zeros(19)
    return [
        Case(
            "rms_norm",
            [x, gain],
            {"eps": 1e-3},
            lambda x, g: ref.rms_norm(x, g, 1e-3),
            lambda dy, x, g: ref.rms_norm_backward(dy, x, g, 1e-3),
        ),
        Case(
            "rms_norm",
            [x, None],
            {},
            lambda x, g: ref.rms_norm(x, ones),
            lambda dy, x, g: (ref.rms_norm_backward(dy, x, ones)[0], None),
        ),
        Case(
            "rms_norm",
            [x, gain],
            {"gain_offset": 1.0},
            lambda x, g: ref.rms_norm(x, ones + g),
            lambda dy, x, g: ref.rms_norm_backward(dy, x, ones + g),
        ),
        Case(
            "rms_norm",
            [x, normal(1)],
            {"gain_offset": -0.5},
            lambda x, g: ref.rms_norm(x, g * ones - 0.5),
            lambda dy, x, g: (lambda dx, dg: (dx, dg.sum(keepdims=True)))(
                *ref.rms_norm_backward(dy, x, g * ones - 0.5)
            ),
        ),
        Case(
            "rms_norm",
            [normal(3, 5, 4 * 19), gain],
            {"heads": 4},
            lambda x, g: ref.rms_norm(x.reshape(3, 5, 4, 19), g).reshape(x.shape),
            lambda dy, x, g: by_heads(dy, x, g, 4),
        ),
        *(
            Case(
                "rms_norm",
                [normal(3, 5, h * 19), normal(1)],
                {"heads": h},
                lambda x, g, h=h: ref.rms_norm(x.reshape(3, 5, h, 19), g * ones).reshape(x.shape),
                lambda dy, x, g, h=h: (lambda dx, dg: (dx, dg.sum(keepdims=True)))(
                    *by_heads(dy, x, g * ones, h)
                ),
            )
            for h in (1, 3)
        ),
        Case(
            "layer_norm",
            [x, gain, bias],
            {"eps": 1e-3},
            lambda x, g, b: ref.layer_norm(x, g, b, 1e-3),
            lambda dy, x, g, b: ref.layer_norm_backward(dy, x, g, 1e-3),
        ),
        Case(
            "layer_norm",
            [x, gain, bias],
            {"gain_offset": 1.0, "scale": 0.25},
            lambda x, g, b: ref.layer_norm(x, (1 + g) / 4, b / 4),
            lambda dy, x, g, b: np.array(ref.layer_norm_backward(dy, x, (1 + g) / 4), object) / (1, 4, 4),
        ),
        Case(
            "layer_norm",
            [x, None, None],
            {},
            lambda x, g, b: ref.layer_norm(x, ones, zeros),
            lambda dy, x, g, b: (ref.layer_norm_backward(dy, x, ones)[0], None, None),
        ),
    ]
