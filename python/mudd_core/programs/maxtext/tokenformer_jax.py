"""The authors' JAX program for TokenFormer and its baseline gpt2.yml (docs/maths/tokenformer.md, 1 to 3).

Layers are stacked along axis 1 of every tensor (scan_layers), or have separate names; keys have the shape
[d, ..., slots]. Its yml files define the settings; sizes come from the tensors. Padding (targets of segment 0) has no
loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt

from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.config.families.heads import head_width
from mudd_core.config.families.tokenformer import SLOT_NORMS, TokenFormerConfig
from mudd_core.config.fields import with_fields
from mudd_core.interop.layout import Entry
from mudd_core.interop.lost_fields import spelled
from mudd_core.interop.settings import Reader, Settings, lacking, layers_in, sizes
from mudd_core.interop.system import Shapes, System
from mudd_core.programs.maxtext.tokenformer_jax_layout import (
    dense_block,
    dense_shapes,
    slot_block,
    slot_shapes,
)
from mudd_core.programs.maxtext.weights import apart, as_they_lie, named, shapes_as_they_lie

_FIRST = "decoder/layers_0/"
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu_tanh",
    "squared_relu": "squared_relu",
}
_SAME_NAME = (
    "normalize_type",
    "zoom_dim",
    "qkv_scale_factor",
    "proj_scale_factor",
    "ffn_scale_factor",
    "qkv_bias",
    "proj_bias",
    "ffn_bias",
    "drop_path",
)
_POSITIONS = "decoder/position_embedder/embedding"


class TokenFormerJax(System[TokenFormerConfig]):
    """The JAX program for TokenFormer as a System (interop/system.py)."""

    normalize = "valid"
    decay = "all"
    families = ("tokenformer",)

    def model_config(self, config: Settings, shapes: Shapes) -> TokenFormerConfig:
        """Return the mudd_core config for settings and sizes; raise ValueError for unsupported settings."""
        read = Reader("tokenformer_jax", config)
        if _drops(read) and read.number("dropout_rate", 0.0):
            raise ValueError(
                "[tokenformer_jax] dropout_rate: expected 0 or enable_dropout false, there is no dropout here"
            )
        if read.number("global_parameter_scale", 1) != 1:
            raise ValueError("[tokenformer_jax] expected global_parameter_scale 1")
        shapes = apart("tokenformer_jax", config, shapes)
        vocab, width = sizes("tokenformer_jax", shapes, "token_embedder/embedding", 2)
        dense = _FIRST + "self_attention/query/kernel" in shapes
        block, given = self._dense(config, shapes) if dense else self._slots(read, shapes)
        tied = "decoder/logits_dense/kernel" not in shapes
        if read.flag("logits_via_embedding", tied) != tied:
            raise ValueError(
                "[tokenformer_jax] logits_via_embedding: the setting does not match the weights "
                "(logits_dense)"
            )
        positions, longest = _positions(read, shapes)
        found = {"base_emb_dim": width, "vocab_size": vocab, "base_num_decoder_layers": block["n_layer"]}
        found |= {"base_num_query_heads": block["n_head"], "head_dim": block["d_head"]}
        read.agree(found if dense else {**found, "slot_num": block["slot_num"]})
        plain = TokenFormerConfig(
            vocab_size=vocab,
            d_model=width,
            max_seq_len=longest,
            positions=positions,
            tie_embeddings=tied,
            normalize_logits=read.flag("normalize_embedding_logits", True),
            norm_eps=read.number("normalization_layer_epsilon", 1e-5),
        )
        return with_fields(plain, {**block, **given})

    def _dense(self, config: Settings, shapes: Shapes) -> tuple[dict[str, int], JsonObject]:
        """Return the sizes of the baseline's blocks, and other config fields."""
        _, heads, width = sizes("tokenformer_jax", shapes, _FIRST + "self_attention/query/kernel", 3)
        names = config.get("mlp_activations", ["silu"])
        if not isinstance(names, list | tuple) or len(names) != 1 or names[0] not in list(_ACTIVATIONS):
            raise ValueError(
                f"[tokenformer_jax] mlp_activations: expected one of {', '.join(_ACTIVATIONS)}, got {names}"
            )
        _, inner = sizes("tokenformer_jax", shapes, _FIRST + "mlp/wi/kernel", 2)
        block = {"n_layer": _layers(shapes), "n_head": heads, "d_head": width, "d_ff": inner}
        return block, {"block": "dense", "mlp_activation": _ACTIVATIONS[str(names[0])]}

    def _slots(self, read: Reader, shapes: Shapes) -> tuple[dict[str, int], JsonObject]:
        """Return the sizes of Pattention blocks, and other config fields."""
        config, attention, system = read.config, _FIRST + "self_attention/", "tokenformer_jax"
        slots = sizes(system, shapes, attention + "qkv_key_slot/kernel", 3)[2]
        attention_width = sizes(system, shapes, attention + "q_value_slot/kernel", 2)[1]
        names = [name for name in ("base_num_query_heads", "num_query_heads") if config.get(name) is not None]
        if not names and config.get("head_dim") is None:
            raise ValueError("[tokenformer_jax] config: expected base_num_query_heads or head_dim")
        heads = read.whole(names[0]) if names else attention_width // read.whole("head_dim")
        if heads < 1 or attention_width % heads:
            raise ValueError(
                f"[tokenformer_jax] base_num_query_heads: {heads} do not divide {attention_width}"
            )
        given = {name: _given(read, name) for name in _SAME_NAME if config.get(name) is not None}
        given["drop_path"] = given.get("drop_path", 0.0) if _drops(read) else 0.0
        block = {
            "n_layer": _layers(shapes),
            "n_head": heads,
            "d_head": attention_width // heads,
            "slot_num": slots,
            "proj_slot_num": sizes(system, shapes, attention + "proj_key_slot/kernel", 2)[1],
            "ffn_slot_num": sizes(system, shapes, _FIRST + "mlp/wi/kernel", 2)[1],
        }
        return block, given

    def original_config(self, model: TokenFormerConfig) -> JsonObject:
        """Return the settings of the yml file; raise ValueError if the program lacks a feature."""
        problems = {
            "positions": model.positions == "rotary",
            "gain_offset": model.gain_offset != 1,
            "gelu": model.block == "pattention" and model.gelu != "tanh",
            "slot_eps": model.block == "pattention" and model.slot_eps >= 0,
            "proj_slot_num": model.slots("proj") != model.slots("qkv"),
            "ffn_slot_num": model.slots("ffn") != 4 * model.slots("qkv"),
        }
        for name, wrong in problems.items():
            if wrong:
                raise ValueError(lacking("tokenformer_jax", model, name))
        settings: JsonObject = {
            "base_emb_dim": model.d_model,
            "base_num_decoder_layers": model.n_layer,
            "base_num_query_heads": model.n_head,
            "base_num_kv_heads": model.n_head,
            "head_dim": head_width(model),
            "vocab_size": model.vocab_size,
            "max_target_length": model.max_seq_len,
            "logits_via_embedding": model.tie_embeddings,
            "normalize_embedding_logits": model.normalize_logits,
            "scan_layers": True,
            "normalization_layer_epsilon": model.norm_eps,
            "use_untrainable_positional_embedding": model.positions == "sinusoidal",
            "trainable_position_size": model.max_seq_len if model.positions == "learned" else -1,
        }
        if model.block == "dense":
            return {
                **settings,
                "base_mlp_dim": model.inner(),
                "mlp_activations": [
                    spelled("tokenformer_jax", "mlp_activation", _ACTIVATIONS, model.mlp_activation)
                ],
            }
        same = {name: getattr(model, name) for name in _SAME_NAME}
        return {**settings, "slot_num": model.slots("qkv"), **same}

    def entries(self, model: TokenFormerConfig, config: Settings) -> list[Entry]:
        """Return the map from mudd_core parameters to the program's tensors."""
        entries = [
            Entry("embed", "token_embedder/embedding"),
            Entry("final_norm.gain", "decoder/decoder_norm/scale"),
            Entry("final_norm.bias", "decoder/decoder_norm/bias"),
        ]
        if not model.tie_embeddings:
            entries.append(Entry("head", "decoder/logits_dense/kernel", axes=(1, 0)))
        if model.positions == "learned":
            entries.append(Entry("pos_embed", _POSITIONS))
        block = dense_block if model.block == "dense" else slot_block
        for layer in range(model.n_layer):
            entries += block(model, layer)
        return as_they_lie(config, entries)

    def shapes(self, model: TokenFormerConfig, config: Settings) -> Shapes:
        """Return the shapes of all the program's tensors."""
        d, vocab = model.d_model, model.vocab_size
        shapes: dict[str, tuple[int, ...]] = {
            "token_embedder/embedding": (vocab, d),
            "decoder/decoder_norm/scale": (d,),
            "decoder/decoder_norm/bias": (d,),
        }
        if not model.tie_embeddings:
            shapes["decoder/logits_dense/kernel"] = (d, vocab)
        if model.positions == "learned":
            shapes[_POSITIONS] = (model.max_seq_len, d)
        heads = (model.n_head, head_width(model))
        if model.block == "dense":
            layer_shapes = dense_shapes(d, heads, model.inner())
        else:
            layer_shapes = slot_shapes(model, heads[0] * heads[1])
        for layer in range(model.n_layer):
            shapes |= {f"decoder/layers_{layer}/{name}": shape for name, shape in layer_shapes.items()}
        return shapes_as_they_lie(config, shapes)

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the batch. Targets of segment 0 are ignored, and positions too if the model has no position
        embedding.
        """
        arrays = named("tokenformer_jax", batch)
        if not _has_positions(config):
            arrays.pop("positions", None)
        return arrays


def _given(read: Reader, name: str) -> Json:
    """Return a setting that has the same name in mudd_core, with the type of the config field."""
    if name == "normalize_type":
        return read.choice(name, SLOT_NORMS[0], SLOT_NORMS)
    return read.flag(name) if name.endswith("_bias") else read.number(name, 0.0)


def _positions(read: Reader, shapes: Shapes) -> tuple[str, int]:
    """Return the kind of positions and their number; add a missing setting for learned positions."""
    config = read.config
    longest = read.whole("max_target_length", 1024)
    sines = read.flag("use_untrainable_positional_embedding")
    size = read.whole("trainable_position_size", -1, low=-1)
    if _POSITIONS not in shapes:
        if size > 0:
            raise ValueError(
                f"[tokenformer_jax] weights: '{_POSITIONS}' is missing (trainable_position_size)"
            )
        return ("sinusoidal" if sines else "none"), longest
    if sines:
        raise ValueError(
            "[tokenformer_jax] use_untrainable_positional_embedding: expected false with learned positions"
        )
    have, _ = sizes("tokenformer_jax", shapes, _POSITIONS, 2)
    if config.get("trainable_position_size") is None and isinstance(config, dict):
        config["trainable_position_size"] = have
    read.agree({"trainable_position_size": have})
    return "learned", have


def _has_positions(config: Settings) -> bool:
    read = Reader("tokenformer_jax", config)
    sines = read.flag("use_untrainable_positional_embedding")
    return sines or read.whole("trainable_position_size", -1, low=-1) > 0


def _drops(read: Reader) -> bool:
    """Return whether dropout and drop_path are on; if they are off, their rates are ignored."""
    return read.flag("enable_dropout", True)


def _layers(shapes: Shapes) -> int:
    layers = 0
    while f"decoder/layers_{layers}/mlp/wi/kernel" in shapes:
        layers += 1
    return layers_in("tokenformer_jax", layers)


SYSTEM = TokenFormerJax()
