"""The authors' PyTorch program: the released MUDDFormer and MUDDPythia models, with or without their connections.

Its config.json defines the settings (docs/maths/muddformer.md, 2 and 3.2); weights have torch's layout [out, in]. The
first block has one norm for query, key and value; gelu is exact; inner widths always grow with depth. Without
connections (dense false) the three projections are one tensor, wqkv, and unused connection tensors are ignored. The
program computes no loss. As in the JAX program, targets with id 0 have no loss.

The program rounds its rotary tables for every dtype: to bfloat16 for MUDDFormer, to float16 for MUDDPythia. In
mudd_core the tables are exact, like rotated queries and keys (docs/maths/muddformer.md, 4.3). So the logits of an fp32
run of the program differ from mudd_core's logits by a few thousandths, or by a ten-thousandth for MUDDPythia.

No released model has the following features, so they are refused: a sliding window shorter than the context, stacked
states, one norm for all streams (sepln false), one stream (dense_type l), and Pythia blocks that are sequential
(use_parallel_residual false) or without biases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy.typing as npt

from mudd_core.base.types import Array, JsonObject
from mudd_core.config.families import MUDDFormerConfig
from mudd_core.config.families.heads import head_width, kv_heads
from mudd_core.interop.layout import Entry
from mudd_core.interop.settings import Reader, Settings, lacking, layers_in, sizes
from mudd_core.interop.system import Shapes, System
from mudd_core.programs.maxtext.weights import shifted

_QKV = ("q", "k", "v")


class MuddformerTorch(System[MUDDFormerConfig]):
    """The PyTorch program for MUDDFormer as a System (interop/system.py)."""

    normalize = "valid"
    decay = "all"
    families = ("muddformer",)

    def model_config(self, config: Settings, shapes: Shapes) -> MUDDFormerConfig:
        """Return the mudd_core config for settings and sizes; raise ValueError for unsupported settings."""
        read = Reader("muddformer_torch", config)
        vocab, width = sizes("muddformer_torch", shapes, "tok_embeddings.weight", 2)
        pythia = "norm.bias" in shapes
        dense, heads = read.flag("dense", True), read.whole("n_head")
        _refuse(read, dense, pythia)
        # The default is two thirds of 4 D, rounded up to a multiple of 256; pythia has no default.
        inner = read.whole("intermediate_size", None if pythia else -(-(8 * width // 3) // 256) * 256)
        groups = read.whole("n_local_heads", -1, low=-1)
        layers = sum(name.endswith(".attention.wo.weight") for name in shapes)
        layers = layers_in("muddformer_torch", layers)
        read.agree({"dim": width, "n_layer": layers, "vocab_size": vocab})
        return MUDDFormerConfig(
            vocab_size=vocab,
            max_seq_len=read.whole("block_size", 2048),
            d_model=width,
            n_layer=layers,
            n_head=heads,
            n_kv_head=heads if groups < 0 else groups,
            d_ff=inner,
            block="pythia" if pythia else "llama",
            rope_base=read.number("rope_base", 10000.0),
            rope_fraction=read.number("rotary_pct", 0.25) if pythia else 1.0,
            norm_eps=read.number("norm_eps", 1e-5 if pythia else 1e-6),
            qk_norm="layers.0.attention.q_norm.weight" in shapes,
            first_norms=1,
            mix="dynamic" if dense else "none",
            activation="gelu_erf",
            hidden_round=pythia or read.flag("round64"),
            last_expand=4 if pythia or read.flag("expand_last") else 1,
        )

    def original_config(self, model: MUDDFormerConfig) -> JsonObject:
        """Return the settings of its config.json; raise ValueError if the program lacks a feature."""
        pythia, dense = model.block == "pythia", model.mix != "none"
        wrong = {
            "n_expert": model.n_expert > 0,
            "prenorm": model.prenorm,
            "postnorm": model.postnorm,
            "ffn_realloc": not model.ffn_realloc,
            "tie_embeddings": model.tie_embeddings,
            "mix": model.mix == "static",
            "streams": dense and model.streams != "qkvr",
            "first_norms": dense and model.first_norms != 1,
            "activation": dense and model.activation != "gelu_erf",
            "dilation": model.dilation != 1,
            "period": model.period != 1,
            "window": model.window != 0,
            "hidden_round": pythia and dense and not model.hidden_round,
            "last_expand": dense and model.last_expand not in ((4,) if pythia else (1, 4)),
            "d_head": model.d_head not in (0, model.d_model // model.n_head),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                raise ValueError(lacking("muddformer_torch", model, name))
        settings: JsonObject = {
            "model_type": "muddpythia" if pythia else "muddformer",
            "block_size": model.max_seq_len,
            "vocab_size": model.vocab_size,
            "n_layer": model.n_layer,
            "n_head": model.n_head,
            "n_local_heads": kv_heads(model),
            "head_dim": head_width(model),
            "dim": model.d_model,
            "intermediate_size": model.d_ff,
            "rope_base": model.rope_base,
            "norm_eps": model.norm_eps,
            "use_qk_norm": model.qk_norm,
            "dense": dense,
            "dynamic_dense": dense,
            "sepln": dense,
            "dense_type": "qkvm" if pythia else "qkvr",
            "expand_last": model.last_expand == 4,
            "round64": model.hidden_round,
        }
        if pythia:
            settings |= {
                "rotary_pct": model.rope_fraction,
                "use_parallel_residual": True,
                "use_linear_bias": True,
            }
        return settings

    def entries(self, model: MUDDFormerConfig, config: Settings) -> list[Entry]:
        """Return the map from mudd_core parameters to the program's tensors."""
        entries = [Entry("embed", "tok_embeddings.weight"), Entry("head", "output.weight")]
        entries += _norm(model, "final_norm", "norm")
        for layer in range(model.n_layer):
            entries += [*_attention(model, layer), *_feed_forward(model, layer)]
            if model.mix != "none":
                entries.append(Entry(f"blocks.{layer}.mix.bias", f"dense_bs.{layer}"))
                for w in ("w1", "w2"):
                    theirs = f"dynamic_dense.{layer}.{w}.weight"
                    entries.append(Entry(f"blocks.{layer}.mix.{w}", theirs, axes=(1, 0)))
        return entries

    def shapes(self, model: MUDDFormerConfig, config: Settings) -> Shapes:
        """Return the shapes of all the program's tensors by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for entry in self.entries(model, config):
            shapes[entry.theirs] = _shape(model, entry.theirs)
        return shapes

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the batch from tokens [B, T + 1], or from inputs, targets, positions and segments."""
        return shifted(batch, "muddformer_torch", zero_counts=False)

    def unused(self, config: Settings, name: str) -> bool:
        """Return whether the original does not read a tensor."""
        return not config.get("dense", True) and name.startswith(("dense_bs.", "dynamic_dense."))


def _refuse(read: Reader, dense: bool, pythia: bool) -> None:
    config = read.config
    expected = {"stack_hidden": False}
    if pythia:
        expected |= {"use_parallel_residual": True, "use_linear_bias": True}
    longest = read.whole("block_size", 2048)
    window = read.whole("window_size", longest)
    if window < longest:
        raise ValueError(
            f"[muddformer_torch] window_size: expected null, or block_size and more, got {window}"
        )
    if dense:
        expected |= {"dynamic_dense": True, "sepln": True}
        if config.get("dense_type", "qkvr") not in ("qkvr", "qkvm"):
            raise ValueError(f"[muddformer_torch] dense_type: expected qkvr, got {config['dense_type']!r}")
    for name, want in expected.items():
        if config.get(name, want) != want:
            raise ValueError(f"[muddformer_torch] {name}: expected {want}, got {config[name]!r}")


def _norm(model: MUDDFormerConfig, ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.gain", f"{theirs}.weight")
    if model.block == "pythia":
        yield Entry(f"{ours}.bias", f"{theirs}.bias")


def _linear(model: MUDDFormerConfig, ours: str, theirs: str) -> Iterator[Entry]:
    yield Entry(f"{ours}.w", f"{theirs}.weight", axes=(1, 0))
    if model.block == "pythia":
        yield Entry(f"{ours}.b", f"{theirs}.bias")


def _attention(model: MUDDFormerConfig, layer: int) -> Iterator[Entry]:
    ours, theirs = f"blocks.{layer}.attn", f"layers.{layer}.attention"
    yield from _linear(model, f"{ours}.o", f"{theirs}.wo")
    if model.mix == "none":
        at = 0
        for c, heads in zip(_QKV, (model.n_head, kv_heads(model), kv_heads(model)), strict=True):
            rows = slice(at, at + heads * head_width(model))
            yield Entry(f"{ours}.{c}.w", f"{theirs}.wqkv.weight", index=(rows,), axes=(1, 0))
            if model.block == "pythia":
                yield Entry(f"{ours}.{c}.b", f"{theirs}.wqkv.bias", index=(rows,))
            at = rows.stop
    else:
        for c in _QKV:
            yield from _linear(model, f"{ours}.{c}", f"{theirs}.w{c}")
    if model.qk_norm:
        for c in "qk":
            yield Entry(f"{ours}.{c}_norm.gain", f"{theirs}.{c}_norm.weight")
    if model.mix == "none" or layer == 0:
        yield from _norm(model, f"{ours}.norm", f"{theirs}_norm")
    else:
        for i, c in enumerate(_QKV):
            yield from _norm(model, f"{ours}.norm_{c}", f"{theirs}_norms.{i}")


def _feed_forward(model: MUDDFormerConfig, layer: int) -> Iterator[Entry]:
    ours, theirs = f"blocks.{layer}.ffn", f"layers.{layer}.feed_forward"
    names = (
        {"up": "w1", "down": "w2"} if model.block == "pythia" else {"gate": "w1", "up": "w3", "down": "w2"}
    )
    for name, w in names.items():
        yield from _linear(model, f"{ours}.{name}", f"{theirs}.{w}")
    yield from _norm(model, f"{ours}.norm", f"layers.{layer}.ffn_norm")


def _shape(model: MUDDFormerConfig, name: str) -> tuple[int, ...]:
    parts, width = name.split("."), model.d_model
    if parts[0] in ("tok_embeddings", "output"):
        return (model.vocab_size, width)
    if parts[0] == "norm":
        return (width,)
    layer = int(parts[1])
    if parts[0] == "dense_bs":
        return (model.mixtures(layer), layer + 2)
    if parts[0] == "dynamic_dense":
        hidden = model.generator_width(layer)
        return (hidden, width) if parts[2] == "w1" else (model.mixtures(layer) * (layer + 2), hidden)
    if "norm" in parts[2]:
        return (width,)
    if parts[3] in ("q_norm", "k_norm"):
        return (head_width(model),)
    inner, head = model.ffn_width(layer), head_width(model)
    queries, keys = model.n_head * head, kv_heads(model) * head
    if parts[2] == "attention":
        rows = {"wq": queries, "wqkv": queries + 2 * keys, "wo": width}.get(parts[3], keys)
        matrix = (rows, queries if parts[3] == "wo" else width)
    else:
        matrix = (width, inner) if parts[3] == "w2" else (inner, width)
    return matrix if parts[4] == "weight" else matrix[:1]


SYSTEM = MuddformerTorch()
