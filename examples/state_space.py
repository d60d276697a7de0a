"""A state-space mixer instead of attention: h_t = a h_{t-1} + (1 - a) u_t for every channel, as an op in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import mudd_core as mc
from mudd_core import nn, ops

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StateSpace(mc.FamilyConfig):
    """Sizes as in Transformer++; n_head, d_head and rope_base have no effect, because there is no attention."""

    tie_embeddings: bool = mc.opt(True, "the head shares the embedding's matrix")


def scan(u: Floats, gate: Floats) -> Floats:
    """Return the states h [B, T, D] for the inputs u [B, T, D], with a = sigmoid(gate) [D]."""
    a = 1 / (1 + np.exp(-gate))
    h, state = np.empty_like(u), np.zeros_like(u[:, 0])
    for t in range(u.shape[1]):
        state = h[:, t] = a * state + (1 - a) * u[:, t]
    return h


def scan_backward(dh: Floats, u: Floats, gate: Floats) -> tuple[Floats, Floats]:
    """Return the gradients of u and gate."""
    a, h = 1 / (1 + np.exp(-gate)), scan(u, gate)
    du, da, state = np.empty_like(u), np.zeros_like(gate), np.zeros_like(u[:, 0])
    for t in reversed(range(u.shape[1])):
        state = dh[:, t] + a * state
        du[:, t] = (1 - a) * state
        da += (state * ((h[:, t - 1] if t else 0) - u[:, t])).sum(axis=0)
    return du, da * a * (1 - a)


def model(config: StateSpace, batch: mc.Batch) -> mc.Hidden:
    """Return the final states for the token ids. There is no cache, so sampling runs the whole sequence for each
    token.
    """
    std, width = config.init_std, config.d_model
    x = nn.embedding(batch.inputs, "embed", config.vocab_size, width, std=std)
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}"):
            u = nn.linear(nn.rms_norm(x, "mix_norm", eps=config.norm_eps), "in", width, std=std)
            gate = nn.parameter("gate", (width,), role="gain", fan_in=width, fan_out=width, init="ones")
            x = nn.linear(mc.custom(scan, scan_backward, u, gate), "out", width, std=std, residual=x)
            f = nn.rms_norm(x, "norm", eps=config.norm_eps)
            up = (nn.linear(f, name, config.d_ff, std=std) for name in ("gate_up", "up"))
            x = nn.linear(ops.glu(*up, activation="silu"), "down", width, std=std, residual=x)
    return mc.Hidden(nn.rms_norm(x, "final_norm", eps=config.norm_eps), nn.head(config, std=std))


mc.register_family(StateSpace, model)
