"""MUDDFormer and its ablations in plain PyTorch (docs/maths/muddformer.md), with mudd_core's parameter names.

Written from the equations: all states stacked, full weights [B, T, C, l], nothing fused. In addition to the parameters
of torch_models.py: `blocks.<n>.attn.norm_{q,k,v}.*`, `blocks.<n>.attn.{q,k}_norm.gain`, `blocks.<n>.mix.{w1,w2,bias}`,
`blocks.<n>.mix.{gain,post_gain}`, `states.<j>.norm.gain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference import torch_models as tm
from reference.torch_mixtral import Experts, Routing, mixture

Params = dict[str, Tensor]
Streams = dict[str, Tensor]


def depth_mix(
    inputs: Sequence[Tensor | None],
    *,
    direct: bool = False,
    post_norm: bool = False,
    activation: str = "gelu_tanh",
    eps: float = 1e-6,
    norm_eps: float = 1e-6,
) -> list[Tensor]:
    """Return the streams of the op depth_mix for bias, w1, w2, generator gain, four stream gains, newest, states."""
    bias, w1, w2, generator_gain, *rest = inputs
    gains, given, states = rest[:4], rest[4], [x for x in rest[5:] if x is not None]
    newest = states[-1] if given is None else given
    assert bias is not None
    weights = bias.expand(*newest.shape[:-1], *bias.shape)
    if w1 is not None and w2 is not None:
        u = tm.rms_norm(newest, torch.ones(()) if generator_gain is None else generator_gain, eps)
        hidden = F.gelu(u @ w1, approximate="tanh" if activation == "gelu_tanh" else "none")
        weights = weights + (hidden @ w2).unflatten(-1, bias.shape)
    streams = []
    for c in range(bias.shape[0]):
        y = torch.stack([weights[..., c, j : j + 1] * x for j, x in enumerate(states)]).sum(0)
        late = post_norm and c == bias.shape[0] - 1
        y = y + newest if direct and not late else y
        gain = gains[c]
        y = y if gain is None else tm.rms_norm(y, gain, norm_eps)
        streams.append(y + newest if late else y)
    return streams


@dataclass(frozen=True)
class MuddConfig:
    """Sizes and switches; the defaults are the paper's plain MUDDFormer on a Llama block."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    ffn: tuple[int, ...]  # width of each block
    hidden: tuple[int, ...]  # generator width after each block, 0: static weights or none
    sources: tuple[tuple[int, ...], ...]  # states mixed after each block
    streams: str = "qkvr"
    pythia: bool = False
    prenorm: bool = False
    postnorm: bool = False
    qk_norm: bool = False
    first_norms: int = 3
    gelu: str = "tanh"
    rope_fraction: float = 1.0
    norm_eps: float = 1e-6
    tied: bool = False

    @property
    def single(self) -> bool:
        """True if the whole block has one input."""
        return self.streams == "x" or not any(self.sources)

    def count(self, layer: int) -> int:
        """Return the number of mixtures after a block."""
        return 1 if layer == self.layers - 1 else len(self.streams)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, head = self.d_model, self.d_model // self.heads
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, D)}
        norms = ["final_norm"]
        for n in range(self.layers):
            b = f"blocks.{n}."
            kv, inner = self.kv_heads * head, self.ffn[n]
            products = [("attn.q", D, D), ("attn.k", D, kv), ("attn.v", D, kv), ("attn.o", D, D)]
            products += [("ffn.up", D, inner), ("ffn.down", inner, D)]
            products += [] if self.pythia else [("ffn.gate", D, inner)]
            for name, fan_in, fan_out in products:
                shapes[f"{b}{name}.w"] = (fan_in, fan_out)
                if self.pythia:
                    shapes[f"{b}{name}.b"] = (fan_out,)
            one = self.single or (n == 0 and self.first_norms == 1)
            norms += [f"{b}ffn.norm", *([f"{b}attn.norm"] if one else [f"{b}attn.norm_{c}" for c in "qkv"])]
            if self.qk_norm:
                shapes[f"{b}attn.q_norm.gain"] = shapes[f"{b}attn.k_norm.gain"] = (head,)
            shapes.update({f"{b}mix.{k}": v for k, v in self.mix_shapes(n).items()})
        for norm in norms:
            shapes[f"{norm}.gain"] = (D,)
            if self.pythia:
                shapes[f"{norm}.bias"] = (D,)
        if self.prenorm:
            shapes.update({f"states.{j}.norm.gain": (D,) for j in range(self.layers + 1)})
        if not self.tied:
            shapes["head"] = (self.vocab_size, D)
        return shapes

    def mix_shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the mixing parameters after block n."""
        count, width = len(self.sources[n]), self.hidden[n]
        if not count:
            return {}
        shapes: dict[str, tuple[int, ...]] = {"bias": (self.count(n), count)}
        if width:
            shapes["w1"], shapes["w2"] = (self.d_model, width), (width, self.count(n) * count)
        if width and self.prenorm:
            shapes["gain"] = (self.d_model,)
        if self.postnorm and (n == self.layers - 1 or self.streams[-1] in "rx"):
            shapes["post_gain"] = (self.d_model,)
        return shapes

    def logits(self, p: Params, batch: tm.Batch) -> Tensor:
        """Return logits [B, T, V]."""
        return self.route(p, batch)[0]

    def route(self, p: Params, batch: tm.Batch) -> tuple[Tensor, list[Routing]]:
        """Return (logits, the routing of every layer with experts)."""
        routings: list[Routing] = []
        x = batch.named("embed.out", p["embed"][batch.tokens])
        states = [x]
        streams: Streams = dict.fromkeys("qkvr", x)
        for n in range(self.layers):
            x = self.block(p, n, streams, batch, routings)
            states.append(x)
            streams = self.mixed(p, n, states, batch)
        h = streams.get("x", x)
        h = batch.named("final_norm.out", self.norm(p, h, "final_norm"))
        return h @ (p["embed"] if self.tied else p["head"]).T, routings

    def norm(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Apply the LayerNorm or RMSNorm of this name."""
        if self.pythia:
            return tm.layer_norm(x, p[f"{name}.gain"], p[f"{name}.bias"], self.norm_eps)
        return tm.rms_norm(x, p[f"{name}.gain"], self.norm_eps)

    def mixed(self, p: Params, n: int, states: list[Tensor], batch: tm.Batch) -> Streams:
        """Return the inputs q, k, v, r of block n + 1; after the last block x."""
        newest, chosen = states[-1], self.sources[n]
        last = n == self.layers - 1
        if not chosen:
            return dict.fromkeys("x" if last else "qkvr", newest)
        read = [
            tm.rms_norm(states[j], p[f"states.{j}.norm.gain"], self.norm_eps) if self.prenorm else states[j]
            for j in chosen
        ]
        mixtures = torch.einsum("btcl,lbtd->cbtd", self.weights(p, n, newest, batch), torch.stack(read))
        names = "x" if last else self.streams
        made = dict(zip(names, mixtures, strict=True))
        if self.postnorm:
            for c in names:
                post = c in "rx"
                y = tm.rms_norm(made[c], p[f"blocks.{n}.mix.post_gain"], self.norm_eps) if post else made[c]
                made[c] = newest + y
        if last:
            return made
        return dict.fromkeys("qkvr", made["x"]) if names == "x" else {c: made.get(c, newest) for c in "qkvr"}

    def weights(self, p: Params, n: int, newest: Tensor, batch: tm.Batch) -> Tensor:
        """Return weights [B, T, C, l]; static weights broadcast to that shape."""
        m = f"blocks.{n}.mix."
        bias = p[m + "bias"]
        if not self.hidden[n]:
            return batch.named(m + "weights", bias.expand(*newest.shape[:2], *bias.shape))
        gain = p[m + "gain"] if self.prenorm else torch.ones(())
        u = tm.rms_norm(newest, gain, self.norm_eps)
        hidden = F.gelu(u @ p[m + "w1"], approximate="tanh" if self.gelu == "tanh" else "none")
        dynamic = batch.named(m + "dynamic_weights", hidden @ p[m + "w2"])
        return batch.named(m + "weights", dynamic.unflatten(-1, bias.shape) + bias)

    def block(self, p: Params, n: int, streams: Streams, batch: tm.Batch, routings: list[Routing]) -> Tensor:
        """Return the output of block n; append its routing to routings if it has experts."""
        b, a, f = f"blocks.{n}.", f"blocks.{n}.attn.", f"blocks.{n}.ffn."
        one = self.single or (n == 0 and self.first_norms == 1)

        def linear(x: Tensor, name: str) -> Tensor:
            return x @ p[f"{name}.w"] + (p[f"{name}.b"] if self.pythia else 0)

        def projected(c: str) -> Tensor:
            read = self.norm(p, streams[c], f"{a}norm" if one else f"{a}norm_{c}")
            made = batch.named(a + c, linear(batch.named(f"{a}in_{c}", read), a + c))
            return made.unflatten(-1, (self.heads if c == "q" else self.kv_heads, -1))

        q, k, v = (projected(c) for c in "qkv")
        if self.qk_norm:
            q, k = (tm.rms_norm(x, p[f"{a}{c}_norm.gain"], self.norm_eps) for x, c in ((q, "q"), (k, "k")))
        q, k = self.rotated(q, batch), self.rotated(k, batch)
        r = batch.named(a + "in_r", streams["r"])
        y = batch.named(a + "out", linear(tm.causal_attention(q, k, v, batch, a), a + "o"))
        h = batch.named(b + "mid", r + y)
        read = batch.named(f + "in", self.norm(p, streams["r"] if self.pythia else h, f + "norm"))
        if isinstance(self, MuddMixture):
            y, routing = mixture(p, f, read, batch, self)
            routings.append(routing)
            return batch.named(b + "out", h + y)
        up = batch.named(f + "up", linear(read, f + "up"))
        inner = F.gelu(up) if self.pythia else F.silu(batch.named(f + "gate", linear(read, f + "gate"))) * up
        y = batch.named(f + "out", linear(batch.named(f + "inner", inner), f + "down"))
        return batch.named(b + "out", h + y)

    def rotated(self, x: Tensor, batch: tm.Batch) -> Tensor:
        """Apply RoPE to the first fraction of each head."""
        width = int(x.shape[-1] * self.rope_fraction)
        positions = tm._positions(batch)
        return torch.cat([tm.rope(x[..., :width], positions, 10000.0), x[..., width:]], -1)


@dataclass(frozen=True)
class MuddMixture(Experts, MuddConfig):
    """A MUDDFormer whose feed-forward parts are mixtures of experts."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        return self.with_experts(super().shapes(), self.layers)
