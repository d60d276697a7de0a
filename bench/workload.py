"""Tokens, initial weights and optimizer settings that all programs of the bench share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shapes import EXPERTS, Shape, mudd_hidden, peak_rss_mib

# At a rate of 1e-3 some batches of GPT-2 (9M, step 22) amplify the rounding of PyTorch's clip from 1e-4 to 7e-3 of the
# loss, while JAX stays within 1e-6 of mudd_core: training is then too unstable to tell rounding from a fault.
LR = 3e-4
BETAS = (0.9, 0.95)
EPS = 1e-8
DECAY = 0.1
CLIP = 1.0
BETA = 0.1  # of DPO


class Rows(Protocol):
    """The shape of a batch: B sequences of T tokens with ids below V."""

    @property
    def V(self) -> int: ...
    @property
    def T(self) -> int: ...
    @property
    def B(self) -> int: ...
    @property
    def tokens(self) -> int: ...


def batch_tokens(shape: Rows, step: int) -> NDArray[np.int64]:
    """Return the sequences [B, T + 1] of a step: ids with a Zipf distribution as in text, equal in every program."""
    rng = np.random.default_rng([step, shape.V])
    u = rng.random((shape.B, shape.T + 1))
    ids: NDArray[np.int64] = np.minimum(np.floor(shape.V**u) - 1, shape.V - 1).astype(np.int64)
    return ids


def tuning_batch(shape: Rows, step: int, counted: float = 1.0) -> dict[str, NDArray[np.int32]]:
    """Return inputs and targets [B, T] of a fine-tuning step; a fraction 1 - counted of the targets is -1 (ignored)."""
    tokens = batch_tokens(shape, step).astype(np.int32)
    batch = {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    left_out = np.random.default_rng([step, 1]).random(batch["targets"].shape) >= counted
    batch["targets"][left_out] = -1
    return batch


def answers_batch(shape: Rows, step: int) -> dict[str, NDArray[np.int32]]:
    """Return inputs and targets [B, T] of pairs of answers. Rows 2i and 2i + 1 share their first half, the prompt."""
    ids = batch_tokens(shape, step)[:, : shape.T].astype(np.int32)
    half = shape.T // 2
    ids[1::2, :half] = ids[::2, :half]
    targets = np.full_like(ids, -1)
    targets[:, half - 1 : -1] = ids[:, half:]
    return {"inputs": ids, "targets": targets}


def forget_peak() -> None:
    """Reset the peak resident memory of this process (VmHWM) to its current resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def spread(seconds: list[float]) -> float:
    """Return (slowest - fastest) / median of the timed steps, which shows how noisy the machine was."""
    ordered = sorted(seconds)
    return (ordered[-1] - ordered[0]) / ordered[len(ordered) // 2]


def length(arrays: Iterable[NDArray[Any]]) -> float:
    """Return the L2 norm over all elements of all arrays, summed in double."""
    return math.sqrt(sum(float(np.square(x, dtype=np.float64).sum()) for x in arrays))


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return initial weights by name, the same for every program: normal 0.02, gains one, biases zero."""
    rng = np.random.default_rng(seed)
    out: dict[str, NDArray[Any]] = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith(".gain"):
            out[name] = np.ones(shape, np.float32)
        elif name.endswith((".bias", ".b")):
            out[name] = np.zeros(shape, np.float32)
            if name.endswith("mix.bias"):
                out[name][:, -1] = 1  # the column of the newest state
        else:
            out[name] = (rng.standard_normal(shape, dtype=np.float32) * 0.02).astype(np.float32)
    return out


def parameter_shapes(s: Shape, family: str) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of mudd_core's parameters on a bench shape."""
    if family == "tokenformer":
        return _tokenformer_shapes(s)
    gpt2 = family == "gpt2"
    inner = s.inner(family)
    matmuls = [("attn", m, s.D, s.D) for m in ("q", "k", "v", "o")]
    matmuls += [("ffn", m, s.D, inner) for m in (("up",) if family in ("gpt2", "mup") else ("gate", "up"))]
    matmuls.append(("ffn", "down", inner, s.D))
    if family == "mixtral":
        matmuls.append(("ffn", "router", s.D, EXPERTS))
    shapes: dict[str, tuple[int, ...]] = {"embed": (s.V, s.D)}
    shapes.update({"pos_embed": (s.T, s.D)} if gpt2 else {"head": (s.V, s.D)})
    norms = ["final_norm"]
    for n in range(s.L):
        norms += [
            f"blocks.{n}.attn.norm{c}" for c in (("_q", "_k", "_v") if family == "muddformer" else ("",))
        ]
        norms.append(f"blocks.{n}.ffn.norm")
        if family == "muddformer":
            count = (1 if n == s.L - 1 else 4) * (n + 2)
            shapes[f"blocks.{n}.mix.w1"] = (s.D, mudd_hidden(s, n))
            shapes[f"blocks.{n}.mix.w2"] = (mudd_hidden(s, n), count)
            shapes[f"blocks.{n}.mix.bias"] = (count // (n + 2), n + 2)
        for part, name, fan_in, fan_out in matmuls:
            experts = (EXPERTS,) if family == "mixtral" and part == "ffn" and name != "router" else ()
            shapes[f"blocks.{n}.{part}.{name}.w"] = (*experts, fan_in, fan_out)
            if gpt2:
                shapes[f"blocks.{n}.{part}.{name}.b"] = (fan_out,)
    for norm in () if family == "mup" else norms:
        shapes[f"{norm}.gain"] = (s.D,)
        if gpt2:
            shapes[f"{norm}.bias"] = (s.D,)
    return shapes


def _tokenformer_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (s.V, s.D),
        "final_norm.gain": (s.D,),
        "final_norm.bias": (s.D,),
    }
    slots = {f"attn.{m}": s.slots for m in "qkvo"} | {"ffn": s.inner("tokenformer")}
    for n in range(s.L):
        for part, count in slots.items():
            shapes |= {f"blocks.{n}.{part}.{side}": (count, s.D) for side in ("key", "value")}
    return shapes


def timing(s: Rows, seconds: list[float], warmup: int) -> dict[str, Any]:
    """Return the speed of the steps after the warm-up, and the memory of this process."""
    timed = seconds[warmup:]
    return {
        "tokens_per_second": s.tokens / statistics.median(timed),
        "spread": spread(timed),
        "peak_rss_mib": peak_rss_mib(),
    }


def tuning_row(
    s: Rows, seconds: list[float], warmup: int, losses: list[float], loaded: float, pss: float
) -> dict[str, Any]:
    """Return what every program of bench_tune.py measures. loaded, pss: MiB after loading, and at most in a step."""
    return {
        **timing(s, seconds, warmup),
        "seconds": seconds[warmup:],
        "loaded_mib": loaded,
        "pss_mib": pss,
        "losses": losses,
    }
