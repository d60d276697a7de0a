"""Op cases of token-parameter attention."""

from __future__ import annotations

from typing import Any

from op_case import Case, normal
from reference import numpy_slots

SLOT_NORMS = ["l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm"]


def slots_case(
    norm: str,
    gelu: str = "tanh",
    biases: bool = False,
    residual: bool = False,
    groups: int = 1,
    **options: Any,
) -> Case:
    """Return a case of token-parameter attention; one row of x is zero."""
    slots = numpy_slots.Slots(
        norm, gelu, **{"scale" if k == "scale_factor" else k: v for k, v in options.items()}
    )

    def tokens(inputs: Any) -> list[Any]:
        return [inputs[1:5], *(inputs[n : n + 4] for n in range(6, 2 + 4 * groups, 4))]

    def forward(*inputs: Any) -> Any:
        y = [numpy_slots.pattention(inputs[0], *t, slots) for t in tokens(inputs)]
        return tuple(y) if groups > 1 else y[0] + (0 if inputs[5] is None else inputs[5])

    def backward(dy: Any, *inputs: Any) -> Any:
        dx, out = 0.0, []
        for d, (key, value, kb, vb) in zip(dy if groups > 1 else [dy], tokens(inputs), strict=True):
            own, dkey, dvalue, dkb, dvb = numpy_slots.pattention_backward(d, inputs[0], key, value, kb, slots)
            dx = dx + own
            out += [dkey, dvalue, None if kb is None else dkb, None if vb is None else dvb]
        return dx, *out[:4], (dy if residual else None), *out[4:]

    x = normal(2, 9, 17)
    x[1, 4] = 0
    inputs: list[Any] = [x]
    for g in range(groups):
        n = 19 + 7 * g
        inputs += [
            normal(n, 17),
            normal(n, 23) * 0.3,
            normal(n) if biases else None,
            normal(23) if biases else None,
        ]
        if g == 0:
            inputs.append(normal(2, 9, 23) if residual else None)
    options = {"norm": norm, "gelu": f"gelu_{gelu}", **options}
    return Case("pattention", inputs, options, forward, backward)


def slots_cases() -> list[Case]:
    """Return cases of every normalisation and gelu, biases, zoom, scale factor, several projections."""
    plain = [slots_case(norm, gelu) for norm in SLOT_NORMS for gelu in ("tanh", "erf")]
    return [
        *plain,
        slots_case("l2_norm_gelu", biases=True, residual=True, zoom=5.0, scale_factor=1.7),
        slots_case("gelu_l2_norm", "erf", biases=True, eps=0.0),
        slots_case("l2_norm_gelu", residual=True, eps=0.0),
        slots_case("softmax", biases=True, scale_factor=0.4),
        slots_case("l2_norm_gelu", groups=3),
        slots_case("gelu_layer_norm", "erf", biases=True, groups=2, scale_factor=0.3),
    ]
