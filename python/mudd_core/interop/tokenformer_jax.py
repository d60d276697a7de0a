"""The authors' JAX program for TokenFormer and its baseline gpt2.yml (spec/tokenformer.md, sections 1 to 3).

Layers are stacked along axis 1 of every tensor (scan_layers), or have a name each; keys lie as [d, ..., slots].
Settings are those of its yml files; sizes are read off the tensors. Positions of padding (segment 0 of the target)
carry no loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from mudd_core.config.families.heads import head_width
from mudd_core.config.families.tokenformer import SLOT_NORMS, TokenFormerConfig
from mudd_core.interop.layout import Array, Entry
from mudd_core.interop.maxtext import apart, as_they_lie, named, shapes_as_they_lie
from mudd_core.interop.system import Shapes, agree
from mudd_core.interop.tokenformer_jax_layout import dense_block, dense_shapes, slot_block, slot_shapes

_FIRST = "decoder/layers_0/"
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu_tanh", "squared_relu": "squared_relu"
}  # fmt: skip
_SAME_NAME = (
    "normalize_type", "zoom_dim", "qkv_scale_factor", "proj_scale_factor", "ffn_scale_factor", "qkv_bias",
    "proj_bias", "ffn_bias", "drop_path",
)  # fmt: skip
_POSITIONS = "decoder/position_embedder/embedding"


class TokenFormerJax:
    """See interop/system.py."""

    normalize = "valid"

    def model_config(self, config: Mapping[str, Any], shapes: Shapes) -> TokenFormerConfig:
        """Settings and sizes as our config; ValueError for what we do not have."""
        if _drops(config) and config.get("dropout_rate", 0):
            raise ValueError(
                "[tokenformer_jax] dropout_rate: expected 0 or enable_dropout false, there is no dropout here"
            )
        if config.get("global_parameter_scale", 1) != 1:
            raise ValueError("[tokenformer_jax] expected global_parameter_scale 1")
        shapes = apart("tokenformer_jax", config, shapes)
        try:
            vocab, width = shapes["token_embedder/embedding"]
            dense = _FIRST + "self_attention/query/kernel" in shapes
            fields = self._dense(config, shapes) if dense else self._slots(config, shapes)
        except KeyError as error:
            raise ValueError(f"[tokenformer_jax] weights: {error} is missing") from None
        tied = "decoder/logits_dense/kernel" not in shapes
        if bool(config.get("logits_via_embedding", tied)) != tied:
            raise ValueError(
                "[tokenformer_jax] logits_via_embedding: the weights say otherwise (logits_dense)"
            )
        positions, longest = _positions(config, shapes)
        agree("tokenformer_jax", config, {
            "base_emb_dim": width, "vocab_size": vocab, "base_num_decoder_layers": fields["n_layer"],
            "base_num_query_heads": fields["n_head"], "head_dim": fields["d_head"],
            **({} if dense else {"slot_num": fields["slot_num"]}),
        })  # fmt: skip
        return TokenFormerConfig(
            vocab_size=vocab,
            d_model=width,
            max_seq_len=longest,
            positions=positions,
            tie_embeddings=tied,
            normalize_logits=bool(config.get("normalize_embedding_logits", True)),
            norm_eps=float(config.get("normalization_layer_epsilon", 1e-5)),
            **fields,
        )

    def _dense(self, config: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
        _, heads, width = shapes[_FIRST + "self_attention/query/kernel"]
        names = config.get("mlp_activations", ["silu"])
        if len(names) != 1 or names[0] not in _ACTIVATIONS:
            raise ValueError(
                f"[tokenformer_jax] mlp_activations: expected one of {', '.join(_ACTIVATIONS)}, got {names}"
            )
        inner = shapes[_FIRST + "mlp/wi/kernel"][1]
        activation = _ACTIVATIONS[names[0]]
        return {"block": "dense", "n_layer": _layers(shapes), "n_head": heads, "d_head": width, "d_ff": inner,
                "mlp_activation": activation}  # fmt: skip

    def _slots(self, config: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
        _, _, slots = shapes[_FIRST + "self_attention/qkv_key_slot/kernel"]
        attention_width = shapes[_FIRST + "self_attention/q_value_slot/kernel"][1]
        heads = config.get("base_num_query_heads", config.get("num_query_heads"))
        width = config.get("head_dim")
        if heads is None and width is None:
            raise ValueError("[tokenformer_jax] config: expected base_num_query_heads or head_dim")
        heads = int(heads) if heads is not None else attention_width // int(width or 1)
        if heads < 1 or attention_width % heads:
            raise ValueError(
                f"[tokenformer_jax] base_num_query_heads: {heads} do not divide {attention_width}"
            )
        if config.get("normalize_type", SLOT_NORMS[0]) not in SLOT_NORMS:
            raise ValueError(
                f"[tokenformer_jax] normalize_type: expected one of {', '.join(SLOT_NORMS)}, "
                f"got {config['normalize_type']!r}"
            )
        kinds = {"zoom_dim": float, "normalize_type": str}
        given = {name: kinds.get(name, lambda v: v)(config[name]) for name in _SAME_NAME if name in config}
        given["drop_path"] = given.get("drop_path", 0.0) if _drops(config) else 0.0
        return {
            "n_layer": _layers(shapes),
            "n_head": heads,
            "d_head": attention_width // heads,
            "slot_num": slots,
            "proj_slot_num": shapes[_FIRST + "self_attention/proj_key_slot/kernel"][1],
            "ffn_slot_num": shapes[_FIRST + "mlp/wi/kernel"][1],
            **given,
        }

    def original_config(self, model: TokenFormerConfig) -> dict[str, Any]:
        """The settings of the yml file; ValueError for what the program does not have."""
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
                raise ValueError(f"[tokenformer_jax] {name}: the JAX program has no {getattr(model, name)}")
        names = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
        settings: dict[str, Any] = {
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
                "mlp_activations": [names[model.mlp_activation]],
            }
        same = {name: getattr(model, name) for name in _SAME_NAME}
        return {**settings, "slot_num": model.slots("qkv"), **same}

    def entries(self, model: TokenFormerConfig, config: Mapping[str, Any]) -> list[Entry]:
        """Every parameter of ours and its place in theirs."""
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

    def shapes(self, model: TokenFormerConfig, config: Mapping[str, Any]) -> Shapes:
        """Shapes of all their tensors."""
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

    def batch(self, config: Mapping[str, Any], batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Targets of segment 0 are ignored; positions count where the model has learned or sinusoidal ones."""
        arrays = named("tokenformer_jax", batch)
        if not _has_positions(config):
            arrays.pop("positions", None)
        return arrays


def _positions(config: Mapping[str, Any], shapes: Shapes) -> tuple[str, int]:
    """Kind of positions and how many there are; learned ones are noted among the settings if they are not there."""
    longest = int(config.get("max_target_length", 1024))
    sines = bool(config.get("use_untrainable_positional_embedding", False))
    size = config.get("trainable_position_size")
    if _POSITIONS not in shapes:
        if size is not None and size > 0:
            raise ValueError(
                f"[tokenformer_jax] weights: '{_POSITIONS}' is missing (trainable_position_size)"
            )
        return ("sinusoidal" if sines else "none"), longest
    if sines:
        raise ValueError(
            "[tokenformer_jax] use_untrainable_positional_embedding: expected false beside learned positions"
        )
    if size is None and isinstance(config, dict):
        config["trainable_position_size"] = shapes[_POSITIONS][0]
    agree("tokenformer_jax", config, {"trainable_position_size": shapes[_POSITIONS][0]})
    return "learned", shapes[_POSITIONS][0]


def _has_positions(config: Mapping[str, Any]) -> bool:
    return (
        bool(config.get("use_untrainable_positional_embedding"))
        or config.get("trainable_position_size", -1) > 0
    )


def _drops(config: Mapping[str, Any]) -> bool:
    """Off means neither dropout nor drop_path, whatever their rates."""
    return bool(config.get("enable_dropout", True))


def _layers(shapes: Shapes) -> int:
    layers = 0
    while f"decoder/layers_{layers}/mlp/wi/kernel" in shapes:
        layers += 1
    return layers


SYSTEM = TokenFormerJax()
