"""The authors' JAX program for MUDDFormer and its Transformer++ baseline (spec/muddformer.md, sections a to d).

Settings are those of its configuration classes; sizes are read off the tensors. Targets with id 0 carry no loss unless
`zero_loss` is set. The program rounds rotated queries and keys to bfloat16 whatever its dtype is; here they stay as
they are (spec/muddformer.md h.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core.config.families import MUDDFormerConfig, TransformerPPConfig
from mudd_core.config.families.heads import head_width, kv_heads
from mudd_core.interop.layout import Array, Entry
from mudd_core.interop.system import Shapes, as_ids

MuddModel = MUDDFormerConfig | TransformerPPConfig
_TYPES = ("qkvm", "qkvr")
_EXPECTED: dict[str, tuple[Any, ...]] = {
    "decoder_block": ("llama2", None),
    "mlp_activations": (["silu", "linear"], ("silu", "linear"), None),
    "enable_dropout": (False, None),
    "dynamic_dense_act_cls": ("gelu", None),
}


class MuddformerJax:
    """See interop/system.py."""

    normalize = "valid"

    def model_config(self, config: Mapping[str, Any], shapes: Shapes) -> MuddModel:
        """Settings and sizes as our config; ValueError for what we do not have."""
        for name, allowed in _EXPECTED.items():
            if config.get(name) not in allowed:
                raise ValueError(f"[muddformer_jax] {name}: expected {allowed[0]}, got {config[name]!r}")
        try:
            sizes = _sizes(config, shapes)
        except KeyError as error:
            raise ValueError(f"[muddformer_jax] weights: {error} is missing") from None
        dense, realloc = bool(config.get("dense_conn")), bool(config.get("dynamic_mlp_dim"))
        if not dense and not realloc:
            return TransformerPPConfig(**sizes)
        if not dense:
            return MUDDFormerConfig(mix="none", **sizes)
        return MUDDFormerConfig(ffn_realloc=realloc, **_connections(config, sizes, shapes), **sizes)

    def original_config(self, model: MuddModel) -> dict[str, Any]:
        """The settings of its configuration class; ValueError for what the program does not have."""
        settings: dict[str, Any] = {
            "emb_dim": model.d_model,
            "num_query_heads": model.n_head,
            "num_kv_heads": kv_heads(model),
            "head_dim": head_width(model),
            "mlp_dim": model.d_ff,
            "num_decoder_layers": model.n_layer,
            "vocab_size": model.vocab_size,
            "max_target_length": model.max_seq_len + 1,
            "normalization_layer_epsilon": model.norm_eps,
            "rope_max_timescale": model.rope_base,
            "logits_via_embedding": model.tie_embeddings,
            "mlp_activations": ["silu", "linear"],
            "zero_loss": False,
            "dense_conn": False,
        }
        if isinstance(model, TransformerPPConfig):
            return settings
        _refuse(model)
        settings["dynamic_mlp_dim"] = model.ffn_realloc
        if model.mix == "none":
            return settings
        return {
            **settings,
            "dense_conn": True,
            "dynamic_dense_type": "qkvm",
            "dynamic_dense_act_cls": "gelu",
            "dynamic_dense_fix_last_layer": True,
            "dynamic_dense_hidden_expand": [1] * (model.n_layer - 1) + [model.last_expand],
            "dynamic_dense_hidden_round": model.hidden_round,
            "ddw_gen_pattern": "q,k,v,m",
            "mudd_prenorm": model.prenorm,
            "mudd_postnorm": model.postnorm,
        }

    def entries(self, model: MuddModel, config: Mapping[str, Any]) -> list[Entry]:
        """Every parameter of ours and its place in theirs."""
        entries = [
            Entry("embed", "token_embedder/embedding"),
            Entry("final_norm.gain", "decoder/decoder_norm/scale"),
        ]
        if not model.tie_embeddings:
            entries.append(Entry("head", "decoder/logits_dense/kernel", axes=(1, 0)))
        for layer in range(model.n_layer):
            entries += _block(model, layer)
        if isinstance(model, MUDDFormerConfig) and model.mix != "none":
            entries += _mixing(model)
        return entries

    def shapes(self, model: MuddModel, config: Mapping[str, Any]) -> Shapes:
        """Shapes of all their tensors by name."""
        width = head_width(model)
        shapes = {
            "token_embedder/embedding": (model.vocab_size, model.d_model),
            "decoder/decoder_norm/scale": (model.d_model,),
            "decoder/logits_dense/kernel": (model.d_model, model.vocab_size),
        }
        if model.tie_embeddings:
            del shapes["decoder/logits_dense/kernel"]
        mudd = model if isinstance(model, MUDDFormerConfig) else None
        for layer in range(model.n_layer):
            inner = mudd.ffn_width(layer) if mudd else model.d_ff
            heads = {"query": model.n_head, "key": kv_heads(model), "value": kv_heads(model)}
            for entry in _block(model, layer):
                part = entry.theirs.split("/")[-2]
                shapes[entry.theirs] = {
                    **{name: (model.d_model, count, width) for name, count in heads.items()},
                    "out": (model.n_head, width, model.d_model),
                    "wi_0": (model.d_model, inner),
                    "wi_1": (model.d_model, inner),
                    "wo": (inner, model.d_model),
                }.get(part, (model.d_model,))
        if mudd and mudd.mix != "none":
            shapes.update(_mixing_shapes(mudd))
        return shapes

    def batch(self, config: Mapping[str, Any], batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """tokens [B, T + 1] as inputs and targets; a batch of ours passes."""
        return shifted(batch, "muddformer_jax", zero_counts=bool(config.get("zero_loss")))


def shifted(batch: Mapping[str, npt.ArrayLike], system: str, *, zero_counts: bool) -> dict[str, Array]:
    """inputs and targets of `tokens` [B, T + 1]; a target of id 0 carries no loss unless zero_counts."""
    if "inputs" in batch:
        return {name: np.asarray(array) for name, array in batch.items()}
    if set(batch) != {"tokens"}:
        raise ValueError(f"[{system}] batch: expected tokens, got {', '.join(sorted(batch))}")
    tokens = as_ids(batch["tokens"], "tokens")
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(
            f"[{system}] tokens: expected [B, T + 1] with T at least 1, got shape {tokens.shape}"
        )
    targets = tokens[:, 1:] if zero_counts else np.where(tokens[:, 1:] == 0, -1, tokens[:, 1:])
    return {
        "inputs": np.ascontiguousarray(tokens[:, :-1]),
        "targets": np.ascontiguousarray(targets, np.int32),
    }


def _sizes(config: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    vocab, width = shapes["token_embedder/embedding"]
    layers = 0
    while f"decoder/layers_{layers}/mlp/wo/kernel" in shapes:
        layers += 1
    if not layers:
        raise KeyError("decoder/layers_0/mlp/wo/kernel")
    _, heads, head = shapes["decoder/layers_0/self_attention/query/kernel"]
    inner = config.get("mlp_dim", config.get("base_mlp_dim"))
    if inner is None:
        inner = shapes["decoder/layers_0/mlp/wo/kernel"][0]
        if config.get("dynamic_mlp_dim"):
            raise ValueError(
                "[muddformer_jax] config: expected mlp_dim, the mean that inner widths grow around"
            )
    return {
        "vocab_size": vocab,
        "max_seq_len": int(config.get("max_target_length", 2049)) - 1,
        "d_model": width,
        "n_layer": layers,
        "n_head": heads,
        "n_kv_head": shapes["decoder/layers_0/self_attention/key/kernel"][1],
        "d_head": head,
        "d_ff": int(inner),
        "rope_base": float(config.get("rope_max_timescale", 10000.0)),
        "norm_eps": float(config.get("normalization_layer_epsilon", 1e-6)),
        "tie_embeddings": "decoder/logits_dense/kernel" not in shapes,
        "init_std": 0.006,
    }


def _connections(config: Mapping[str, Any], sizes: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    layers = sizes["n_layer"]
    kind = config.get("dynamic_dense_type", "qkvm")
    if kind not in _TYPES:
        raise ValueError(f"[muddformer_jax] dynamic_dense_type: expected qkvm, got {kind!r}")
    if not config.get("dynamic_dense_fix_last_layer", True):
        raise ValueError("[muddformer_jax] dynamic_dense_fix_last_layer: expected true, got false")
    expand = config.get("dynamic_dense_hidden_expand")
    if expand is not None and (len(expand) != layers or any(times != 1 for times in expand[:-1])):
        raise ValueError(
            f"[muddformer_jax] dynamic_dense_hidden_expand: expected {layers - 1} ones and a last number, got {expand}"
        )
    return {
        **_generator(config, shapes, layers, None if expand is None else int(expand[-1])),
        "prenorm": bool(config.get("mudd_prenorm")),
        "postnorm": bool(config.get("mudd_postnorm")),
    }


def _generator(config: Mapping[str, Any], shapes: Shapes, layers: int, expand: int | None) -> dict[str, Any]:
    """Widths of the generators as the settings say; what they leave out as the tensors have it."""
    have = [shapes.get(f"decoder/layers_{n}/dynamic_dense_conn1/kernel", (0, 0))[1] for n in range(layers)]
    rounds = config.get("dynamic_dense_hidden_round")
    for hidden_round in (True, False) if rounds is None else (bool(rounds),):
        for times in (4, 1) if expand is None else (expand,):
            found: dict[str, Any] = {"hidden_round": hidden_round, "last_expand": times}
            asked = MUDDFormerConfig(n_layer=layers, **found)
            if [asked.generator_width(n) for n in range(layers)] == have:
                return found
    raise ValueError(f"[muddformer_jax] dynamic_dense_conn1: widths {have} do not follow from the settings")


def _refuse(model: MUDDFormerConfig) -> None:
    plain = MUDDFormerConfig()
    mixes = model.mix != "none"
    for name in ("block", "qk_norm", "rope_fraction"):
        if getattr(model, name) != getattr(plain, name):
            raise ValueError(f"[muddformer_jax] {name}: the JAX program has no {getattr(model, name)}")
    for name in ("streams", "activation", "first_norms", "dilation", "period", "window"):
        if mixes and getattr(model, name) != getattr(plain, name):
            raise ValueError(f"[muddformer_jax] {name}: the JAX program has no {getattr(model, name)}")
    if model.mix == "static":
        raise ValueError("[muddformer_jax] mix: the JAX program has no static")


def _block(model: MuddModel, layer: int) -> Iterator[Entry]:
    ours, theirs = f"blocks.{layer}.", f"decoder/layers_{layer}/"
    for name, part in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out")):
        yield Entry(f"{ours}attn.{name}.w", f"{theirs}self_attention/{part}/kernel")
    for name, part in (("gate", "wi_0"), ("up", "wi_1"), ("down", "wo")):
        yield Entry(f"{ours}ffn.{name}.w", f"{theirs}mlp/{part}/kernel")
    yield Entry(f"{ours}ffn.norm.gain", f"{theirs}post_self_attention_layer_norm/scale")
    single = isinstance(model, TransformerPPConfig) or model.single
    for c in ("",) if single else ("_q", "_k", "_v"):
        yield Entry(f"{ours}attn.norm{c}.gain", f"{theirs}pre_self_attention_layer_norm{c}/scale")


def _mixing(model: MUDDFormerConfig) -> Iterator[Entry]:
    if model.prenorm:
        yield Entry("states.0.norm.gain", "decoder/mudd_prenorm/scale")
    for layer in range(model.n_layer):
        ours, theirs = f"blocks.{layer}.mix.", f"decoder/layers_{layer}/"
        yield Entry(f"{ours}w1", f"{theirs}dynamic_dense_conn1/kernel")
        yield Entry(f"{ours}w2", f"{theirs}dynamic_dense_conn2/kernel")
        yield Entry(f"{ours}bias", f"{theirs}dense_proj2.bias")
        if model.prenorm:
            yield Entry(f"{ours}gain", f"{theirs}pre_dense_proj1_norm/scale")
            yield Entry(f"states.{layer + 1}.norm.gain", f"decoder/mudd_prenorm_{layer}/scale")
        if model.postnorm:
            yield Entry(f"{ours}post_gain", f"decoder/mudd_postnorm_{layer}/scale")


def _mixing_shapes(model: MUDDFormerConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in _mixing(model):
        layer = int(entry.ours.split(".")[1])
        if entry.ours.endswith("gain"):
            shapes[entry.theirs] = (model.d_model,)
            continue
        count, states, hidden = model.mixtures(layer), layer + 2, model.generator_width(layer)
        shapes[entry.theirs] = {
            "w1": (model.d_model, hidden),
            "w2": (hidden, count, states),
            "bias": (count, states),
        }[entry.ours.rsplit(".", 1)[1]]
    return shapes


SYSTEM = MuddformerJax()
