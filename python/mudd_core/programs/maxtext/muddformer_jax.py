"""The authors' JAX program for MUDDFormer and its Transformer++ baseline (docs/maths/muddformer.md, 1 to 4).

Its configuration classes define the settings. Sizes come from the tensors. Each layer has separate names; without
connections the layers may be stacked (scan_layers). Targets with id 0 carry no loss unless `zero_loss` is set. The
program rounds rotated queries and keys to bfloat16 for every dtype; mudd_core does not round them
(docs/maths/muddformer.md, 4.3). If the last layer keeps all streams (dynamic_dense_fix_last_layer false), the head
reads the first one, without the residual's norm. The other streams are dead: their gradients are zero, and they are
exported as zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import fields

import numpy.typing as npt

from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.config.families import MUDDFormerConfig, TransformerPPConfig
from mudd_core.config.families.heads import head_width, kv_heads
from mudd_core.interop.layout import Entry
from mudd_core.interop.lost_fields import spelled
from mudd_core.interop.settings import Reader, Settings, TransformerFields, lacking, layers_in, sizes
from mudd_core.interop.system import Shapes, System
from mudd_core.programs.maxtext.keys_weights import block_names
from mudd_core.programs.maxtext.muddformer_connections import (
    ACTIVATIONS,
    connections,
    expansion,
    fixed_last,
    mixing,
    mixing_shapes,
)
from mudd_core.programs.maxtext.weights import apart, as_they_lie, shapes_as_they_lie, shifted

MuddModel = MUDDFormerConfig | TransformerPPConfig
# Settings that change the program's results, with the values that mudd_core supports; Python configs have tuples.
_EXPECTED: dict[str, tuple[Json | tuple[str, ...], ...]] = {
    "decoder_block": ("llama2", None),
    "mlp_activations": (["silu", "linear"], ("silu", "linear"), None),
    "dynamic_dense_act_cls": (*ACTIVATIONS, None),
    "final_logits_soft_cap": (0, 0.0, None),
    "use_untrainable_positional_embedding": (False, None),
    "trainable_position_size": (-1, 0, None),
    "num_experts": (1, 0, None),
    "rope_min_timescale": (1, None),
}


class MuddformerJax(System[MuddModel]):
    """The JAX program for MUDDFormer as a System (interop/system.py)."""

    normalize = "valid"
    decay = "all"
    families = ("transformer_pp", "muddformer")

    def model_config(self, config: Settings, shapes: Shapes) -> MuddModel:
        """Return the mudd_core config for settings and sizes; raise ValueError for unsupported settings."""
        for name, allowed in _EXPECTED.items():
            if config.get(name) not in allowed:
                raise ValueError(f"[muddformer_jax] {name}: expected {allowed[0]}, got {config[name]!r}")
        read = Reader("muddformer_jax", config)
        if read.flag("enable_dropout") and read.number("dropout_rate", 0.0):
            raise ValueError(
                "[muddformer_jax] dropout_rate: expected 0 or enable_dropout false, there is no dropout here"
            )
        shapes = apart("muddformer_jax", config, shapes)
        sized = _fields(read, shapes)
        _check_sizes(read, sized)
        dense, realloc = read.flag("dense_conn"), read.flag("dynamic_mlp_dim")
        if not dense and not realloc:
            return TransformerPPConfig(**sized)
        if not dense:
            return MUDDFormerConfig(mix="none", **sized)
        return MUDDFormerConfig(ffn_realloc=realloc, **connections(read, sized["n_layer"], shapes), **sized)

    def in_family(self, found: MuddModel, family: str) -> MuddModel:
        """Return a Transformer++ as the equivalent MUDDFormer without connections."""
        if isinstance(found, MUDDFormerConfig):
            return found
        sizes = {
            field.name: getattr(found, field.name)
            for field in fields(MUDDFormerConfig)
            if hasattr(found, field.name)
        }
        return MUDDFormerConfig(**{**sizes, "family": family, "mix": "none", "ffn_realloc": False})

    def original_config(self, model: MuddModel) -> JsonObject:
        """Return the settings of its configuration class; raise ValueError if the program lacks a feature."""
        settings: JsonObject = {
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
            "normalize_embedding_logits": False,
            "mlp_activations": ["silu", "linear"],
            "zero_loss": False,
            "dense_conn": False,
            "scan_layers": False,
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
            "dynamic_dense_act_cls": spelled("muddformer_jax", "activation", ACTIVATIONS, model.activation),
            "dynamic_dense_fix_last_layer": True,
            "dynamic_dense_hidden_expand": [*expansion(model)],
            "dynamic_dense_hidden_round": model.hidden_round and not model.hidden,
            "ddw_gen_pattern": "q,k,v,m",
            "mudd_prenorm": model.prenorm,
            "mudd_postnorm": model.postnorm,
        }

    def entries(self, model: MuddModel, config: Settings) -> list[Entry]:
        """Return the map from mudd_core parameters to the program's tensors."""
        divided = model.tie_embeddings and config.get("normalize_embedding_logits", True)
        factor = model.d_model**-0.5 if divided else 1.0  # the program divides a tied head's logits
        entries = [
            Entry("embed", "token_embedder/embedding"),
            Entry("final_norm.gain", "decoder/decoder_norm/scale", factor=factor),
        ]
        if not model.tie_embeddings:
            entries.append(Entry("head", "decoder/logits_dense/kernel", axes=(1, 0)))
        for layer in range(model.n_layer):
            entries += itertools.starmap(Entry, block_names(model, layer))
        if isinstance(model, MUDDFormerConfig) and model.mix != "none":
            entries += mixing(model, fixed=fixed_last(config))
        return as_they_lie(config, entries)

    def shapes(self, model: MuddModel, config: Settings) -> Shapes:
        """Return the shapes of all the program's tensors by name."""
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
            for _, theirs in block_names(model, layer):
                part = theirs.split("/")[-2]
                shapes[theirs] = {
                    **{name: (model.d_model, count, width) for name, count in heads.items()},
                    "out": (model.n_head, width, model.d_model),
                    "wi_0": (model.d_model, inner),
                    "wi_1": (model.d_model, inner),
                    "wo": (inner, model.d_model),
                }.get(part, (model.d_model,))
        if mudd and mudd.mix != "none":
            shapes.update(mixing_shapes(mudd, fixed=fixed_last(config)))
        return shapes_as_they_lie(config, shapes)

    def unused(self, config: Settings, name: str) -> bool:
        """Return whether no layer reads a tensor: the gain of a dead stream after the last layer."""
        layers = config.get("num_decoder_layers", config.get("base_num_decoder_layers"))
        return (
            not fixed_last(config)
            and isinstance(layers, int)
            and name == f"decoder/mudd_postnorm_{layers - 1}/scale"
        )

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the batch from tokens [B, T + 1], or from inputs, targets, positions and segments."""
        return shifted(batch, "muddformer_jax", zero_counts=bool(config.get("zero_loss")))


def _fields(read: Reader, shapes: Shapes) -> TransformerFields:
    system, attention = "muddformer_jax", "decoder/layers_0/self_attention/"
    vocab, width = sizes(system, shapes, "token_embedder/embedding", 2)
    inner, _ = sizes(system, shapes, "decoder/layers_0/mlp/wo/kernel", 2)
    layers = 1
    while f"decoder/layers_{layers}/mlp/wo/kernel" in shapes:
        layers += 1
    _, heads, head = sizes(system, shapes, attention + "query/kernel", 3)
    inner_name = next(
        (name for name in ("mlp_dim", "base_mlp_dim") if read.config.get(name) is not None), None
    )
    if inner_name is None and read.flag("dynamic_mlp_dim"):
        raise ValueError("[muddformer_jax] config: expected mlp_dim, the mean of the layers' inner widths")
    return {
        "vocab_size": vocab,
        "max_seq_len": read.whole("max_target_length", 2049, low=2) - 1,
        "d_model": width,
        "n_layer": layers_in(system, layers),
        "n_head": heads,
        "n_kv_head": sizes(system, shapes, attention + "key/kernel", 3)[1],
        "d_head": head,
        "d_ff": read.whole(inner_name) if inner_name else inner,
        "rope_base": read.number("rope_max_timescale", 10000.0),
        "norm_eps": read.number("normalization_layer_epsilon", 1e-6),
        "tie_embeddings": "decoder/logits_dense/kernel" not in shapes,
        "init_std": 0.006,
    }


def _check_sizes(read: Reader, sized: TransformerFields) -> None:
    """Raise ValueError if the settings contradict the tensors or each other."""
    found = {
        "emb_dim": sized["d_model"],
        "num_query_heads": sized["n_head"],
        "num_kv_heads": sized["n_kv_head"],
        "num_decoder_layers": sized["n_layer"],
    }
    if read.number("global_parameter_scale", 1) == 1:
        found |= {f"base_{name}": size for name, size in found.items()}
    read.agree({**found, "head_dim": sized["d_head"], "vocab_size": sized["vocab_size"]})
    have = sized["tie_embeddings"]
    if (tied := read.flag("logits_via_embedding", have)) != have:
        raise ValueError(
            f"[muddformer_jax] logits_via_embedding: {tied}, but decoder/logits_dense/kernel is "
            f"{'missing' if have else 'there'}"
        )


def _refuse(model: MUDDFormerConfig) -> None:
    plain = MUDDFormerConfig()
    mixes = model.mix != "none"
    if model.n_expert:
        raise ValueError(
            f"[muddformer_jax] n_expert: expected 0, the program's block has no experts, got {model.n_expert}"
        )
    for name in ("block", "qk_norm", "rope_fraction"):
        if getattr(model, name) != getattr(plain, name):
            raise ValueError(lacking("muddformer_jax", model, name))
    for name in ("streams", "first_norms", "dilation", "period", "window", "last_norm"):
        if mixes and getattr(model, name) != getattr(plain, name):
            raise ValueError(lacking("muddformer_jax", model, name))
    if model.mix == "static":
        raise ValueError(lacking("muddformer_jax", model, "mix"))


SYSTEM = MuddformerJax()
