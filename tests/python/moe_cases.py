"""Op cases of a mixture of experts: routers, experts and auxiliary losses in all their forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case, act, act_slope, integers, normal, rng
from reference import numpy_moe as moe


def route_case(width: int = 19, experts: int = 6, k: int = 2, mask: str = "", **options: Any) -> Case:
    inputs = [normal(2, 13, width), normal(width, experts) * 0.5, None, None]
    if mask:
        inputs[2 if mask == "segments" else 3] = integers(2, 2, 13)
    capacity = {
        name: options[name]
        for name in ("capacity_factor", "capacity_scope", "drop_policy")
        if name in options
    }

    def forward(x: Any, w: Any, s: Any, m: Any) -> Any:
        return moe.route(x, w, k, moe.real(x, s, m), **capacity)[:3]

    def backward(dy: Any, x: Any, w: Any, s: Any, m: Any) -> Any:
        return *moe.route_backward(dy[0], dy[2], x, w, k, moe.real(x, s, m), **capacity), None, None

    return Case("moe_route", inputs, {"top_k": k, **options}, forward, backward)


def experts_case(
    k: int = 2,
    activation: str = "silu",
    full_drop: str = "passthrough",
    residual: bool = False,
    only: int = -1,
    adapters: str = "",
) -> Case:
    """Return a case of five experts, some tokens with one or none.

    only: all slots go to this expert. adapters: the names of the stacks with an adapter.
    """
    B, T, D, E, F = 2, 13, 19, 5, 11
    chosen = np.argsort(rng.random((B, T, E)), -1)[..., :k].astype(np.int32)
    chosen[0, 3], chosen[1, 2, 0], chosen[1, 7] = -1, -1, -1
    if only >= 0:
        chosen[...] = -1
        chosen[..., 0] = only
    inputs = [
        normal(B, T, D),
        np.abs(normal(B, T, k)),
        chosen,
        normal(E, D, F) * 0.3,
        normal(E, D, F) * 0.3,
        normal(E, F, D) * 0.3,
        normal(B, T, D) if residual else None,
    ]
    rank = 3
    for name, shapes in {
        "gate_up": ((E, D, rank), (E, 2 * rank, F)),
        "down": ((E, F, rank), (E, rank, D)),
    }.items():
        inputs += [normal(*shape) * 0.3 if name in adapters else None for shape in shapes]
    scale = 1.5

    def forward(*given: Any) -> Any:
        return moe.experts(
            *moe.adapted(given, scale),
            activation=lambda z: act(activation, z),
            passthrough=full_drop == "passthrough",
        )

    def backward(dy: Any, *given: Any) -> Any:
        whole = moe.experts_backward(
            dy,
            *moe.adapted(given, scale),
            activation=lambda z: act(activation, z),
            slope=lambda z: act_slope(activation, z),
            passthrough=full_drop == "passthrough",
        )
        return *whole, *moe.adapted_backward(whole[3:6], given[7:], scale)

    options = {"activation": activation, "full_drop": full_drop, "scale": scale}
    return Case("grouped_gemm", inputs, options, forward, backward)


def balance_case(form: str, scope: str = "shard", weighted: bool = False, layers: int = 3) -> Case:
    targets = integers(9, 4, 6)
    targets[1, 2:5] = -1
    metrics = [np.abs(normal(4, 4 * 5 + 3)) * 3 + 1 for _ in range(layers)]
    options = {"form": form, "scope": scope, "balance": 0.3, "z": 0.05, "top_k": 2}

    def forward(t: Any, *f: Any) -> Any:
        balance, z, _ = moe.balance(f, 5, 2, form)
        n = (t >= 0).sum()
        return tuple(np.array([n * v]) for v in (0.3 * balance + 0.05 * z, balance, z))

    def backward(dloss: Any, t: Any, *f: Any) -> Any:
        scale = (t >= 0).sum() * (1.0 if dloss is None else float(dloss[0]))
        return None, *moe.balance_backward(f, 5, 2, form, 0.3 * scale, 0.05 * scale)

    case = Case("moe_balance", [targets, *metrics], options, forward, backward)
    return case._replace(options={**options, "dloss": np.array([2.5])}) if weighted else case


def moe_cases() -> list[Case]:
    """Return cases of routers, experts and auxiliary losses in all their forms."""
    limited = {"capacity_factor": 0.7}
    return [
        route_case(),
        route_case(mask="segments"),
        route_case(experts=1, k=1),
        route_case(mask="key_mask", experts=17, k=4),
        route_case(**limited),
        route_case(**limited, drop_policy="probs", mask="key_mask"),
        route_case(**limited, capacity_scope="shard"),
        route_case(k=3, capacity_factor=0.4, capacity_scope="shard", drop_policy="probs"),
        experts_case(),
        experts_case(k=1, activation="gelu_tanh", full_drop="zero"),
        experts_case(k=3, residual=True),
        experts_case(full_drop="zero", residual=True),
        experts_case(only=3, residual=True),
        experts_case(adapters="gate_up down", residual=True),
        experts_case(adapters="gate_up", activation="gelu_tanh"),
        experts_case(adapters="down", k=3),
        balance_case("pooled"),
        balance_case("per_layer"),
        balance_case("pooled", "batch", weighted=True),
        balance_case("per_layer", "batch", layers=1),
    ]
