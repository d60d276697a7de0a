"""The authors' GPT-NeoX program for TokenFormer (docs/maths/tokenformer.md, 2.2).

Tensors have the numbers of its sequential modules: 0 is the embedding (and learned positions), 1 is a transposition, 2
to L + 1 are the layers, L + 3 is the final norm, and L + 4 is an untied head. The prefix is `sequential.`, as the
program writes it without pipeline stages, or the prefix of the loaded weights. Every target contributes to the loss.
Documents are joined, and the mask is only causal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy.typing as npt

from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.config.families.heads import head_width
from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.interop.layout import Entry
from mudd_core.interop.settings import Reader, Settings, lacking, layers_in, sizes
from mudd_core.interop.system import Shapes, System, as_ids

_FIRST = "2.attention.query.key_param_tokens"
# Other settings that change the program's results.
_EXPECTED: dict[str, tuple[Json, ...]] = {
    "norm": ("layernorm_nonparam",),
    "final_norm": ("layernorm",),
    "sliding_window_width": (None,),
    "use_mup": (False,),
    "hidden_dropout": (0,),
    "attention_dropout": (0,),
}
_PARTS = {
    "attn.q": "attention.query",
    "attn.k": "attention.key",
    "attn.v": "attention.value",
    "attn.o": "attention.proj",
    "ffn": "mlp",
}
_SLOTS = {
    "qkv_slot_num": _FIRST,
    "proj_slot_num": "2.attention.proj.key_param_tokens",
    "ffn_slot_num": "2.mlp.key_param_tokens",
}
_POSITIONS = ("rotary", "learned", "none")
_NORMS = ("l2_norm_gelu", "gelu_l2_norm", "softmax")


class TokenFormerNeox(System[TokenFormerConfig]):
    """The GPT-NeoX program as a System; the settings parameter_prefix and embedding_name define tensor names."""

    normalize = "valid"
    families = ("tokenformer",)

    def model_config(self, config: Settings, shapes: Shapes) -> TokenFormerConfig:
        """Return the mudd_core config for settings and sizes. Add the prefix of the weights' names to the settings."""
        embedding = _add_names(config, shapes)
        prefix = _prefix(config)
        read = Reader("tokenformer_neox", config)
        vocab, width = sizes("tokenformer_neox", shapes, embedding, 2)
        layers = 0
        while f"{prefix}{layers + 2}.mlp.key_param_tokens" in shapes:
            layers += 1
        if self._unsupported(config):
            raise ValueError(f"[tokenformer_neox] {self._unsupported(config)}")
        slots = {
            group: sizes("tokenformer_neox", shapes, prefix + name, 2)[0] for group, name in _SLOTS.items()
        }
        tied = f"{prefix}{layers + 4}.final_linear.weight" not in shapes
        if read.flag("no_weight_tying", not tied) == tied:
            want, has = ("false", "no") if tied else ("true", "a")
            raise ValueError(
                f"[tokenformer_neox] no_weight_tying: expected {want}, because the weights have {has} final_linear"
            )
        layers = layers_in("tokenformer_neox", layers)
        heads = read.whole("num_attention_heads")
        read.agree({"num_layers": layers, "hidden_size": width, **slots})
        if width % heads:
            raise ValueError(f"[tokenformer_neox] num_attention_heads: {heads} do not divide width {width}")
        rotated = int(width // heads * read.number("rotary_pct", 0.25))
        positions = read.choice("pos_emb", "rotary", _POSITIONS)
        longest = read.whole("max_position_embeddings", read.whole("seq_length", 2048))
        if positions == "learned":
            longest = sizes("tokenformer_neox", shapes, _positions_name(config), 2)[0]
            read.agree({"max_position_embeddings": longest})
        return TokenFormerConfig(
            vocab_size=vocab,
            d_model=width,
            n_layer=layers,
            n_head=heads,
            max_seq_len=longest,
            slot_num=slots["qkv_slot_num"],
            proj_slot_num=slots["proj_slot_num"],
            ffn_slot_num=slots["ffn_slot_num"],
            normalize_type=read.choice("norm_activation_type", _NORMS[0], _NORMS),
            gelu="erf",
            slot_eps=0.0,
            positions=positions,
            rope_fraction=rotated / (width // heads),
            rope_base=read.number("rotary_emb_base", 10000),
            norm_eps=read.number("layernorm_epsilon", 1e-5),
            gain_offset=0.0,
            tie_embeddings=tied,
            normalize_logits=False,
            init="neox",
        )

    def _unsupported(self, config: Settings) -> str:
        for name, allowed in _EXPECTED.items():
            if config.get(name, allowed[0]) not in (*allowed, None):
                return f"{name}: expected {allowed[0]}, got {config[name]!r}"
        return ""

    def original_config(self, model: TokenFormerConfig) -> JsonObject:
        """Return the settings of its yml files; raise ValueError if the program lacks a feature."""
        wanted = {
            "block": "pattention",
            "gelu": "erf",
            "slot_eps": 0.0,
            "gain_offset": 0.0,
            "zoom_dim": 0,
            "qkv_bias": False,
            "proj_bias": False,
            "ffn_bias": False,
            "drop_path": 0.0,
            "qkv_scale_factor": 1.0,
            "proj_scale_factor": 1.0,
            "ffn_scale_factor": 1.0,
        }
        for name, value in wanted.items():
            if getattr(model, name) != value:
                raise ValueError(
                    f"[tokenformer_neox] {name}: expected {value!r} for this program, got {getattr(model, name)!r}"
                )
        if model.tie_embeddings and model.normalize_logits:
            raise ValueError("[tokenformer_neox] normalize_logits: expected False for this program")
        for name, known in (("positions", _POSITIONS), ("normalize_type", _NORMS)):
            if getattr(model, name) not in known:
                raise ValueError(lacking("tokenformer_neox", model, name))
        if head_width(model) * model.n_head != model.d_model:
            raise ValueError("[tokenformer_neox] d_head: expected d_model / n_head")
        return {
            "num_layers": model.n_layer,
            "hidden_size": model.d_model,
            "num_attention_heads": model.n_head,
            "qkv_slot_num": model.slots("qkv"),
            "proj_slot_num": model.slots("proj"),
            "ffn_slot_num": model.slots("ffn"),
            "seq_length": model.max_seq_len,
            "max_position_embeddings": model.max_seq_len,
            "pos_emb": model.positions,
            "rotary_pct": model.rope_fraction,
            "rotary_emb_base": model.rope_base,
            "norm": "layernorm_nonparam",
            "final_norm": "layernorm",
            "layernorm_epsilon": model.norm_eps,
            "norm_activation_type": model.normalize_type,
            "no_weight_tying": not model.tie_embeddings,
        }

    def entries(self, model: TokenFormerConfig, config: Settings) -> list[Entry]:
        """Return the map from mudd_core parameters to the program's tensors, which have equal shapes."""
        prefix = _prefix(config)
        norm = f"{prefix}{model.n_layer + 3}.norm."
        entries = [
            Entry("embed", _embedding_name(config)),
            Entry("final_norm.gain", norm + "weight"),
            Entry("final_norm.bias", norm + "bias"),
        ]
        if model.positions == "learned":
            entries.append(Entry("pos_embed", _positions_name(config)))
        if not model.tie_embeddings:
            entries.append(Entry("head", f"{prefix}{model.n_layer + 4}.final_linear.weight"))
        for layer in range(model.n_layer):
            for ours, theirs in _PARTS.items():
                for side in ("key", "value"):
                    name = f"{prefix}{layer + 2}.{theirs}.{side}_param_tokens"
                    entries.append(Entry(f"blocks.{layer}.{ours}.{side}", name))
        return entries

    def shapes(self, model: TokenFormerConfig, config: Settings) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all the program's tensors."""
        groups = {"attn.q": "qkv", "attn.k": "qkv", "attn.v": "qkv", "attn.o": "proj", "ffn": "ffn"}
        shapes: dict[str, tuple[int, ...]] = {}
        for entry in self.entries(model, config):
            part = entry.ours.split(".", 2)[-1].rpartition(".")[0]
            if entry.ours in ("embed", "head"):
                shapes[entry.theirs] = (model.vocab_size, model.d_model)
            elif entry.ours == "pos_embed":
                shapes[entry.theirs] = (model.max_seq_len, model.d_model)
            elif entry.ours.startswith("final_norm"):
                shapes[entry.theirs] = (model.d_model,)
            else:
                shapes[entry.theirs] = (model.slots(groups[part]), model.d_model)
        return shapes

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return inputs and targets unchanged."""
        unknown = sorted(set(batch) - {"inputs", "targets", "positions", "segments", "key_mask"})
        if unknown:
            raise ValueError(f"[tokenformer_neox] batch: expected inputs and targets, got '{unknown[0]}'")
        return {name: as_ids(value, name) for name, value in batch.items()}


def _embedding_name(config: Settings) -> str:
    return str(config.get("embedding_name", f"{_prefix(config)}0.word_embeddings.weight"))


def _positions_name(config: Settings) -> str:
    return _embedding_name(config).replace("word_embeddings", "position_embeddings")


def _add_names(config: Settings, shapes: Shapes) -> str:
    """Add the names of the weights to the settings of a dict; return the name of the embedding."""
    if isinstance(config, dict):  # the program accepts dashes and underscores
        config.update({name.replace("-", "_"): value for name, value in config.items()})
    first = [name for name in shapes if re.search(rf"(^|\.){re.escape(_FIRST)}$", name)]
    embedding = [name for name in shapes if name.endswith("word_embeddings.weight")]
    if len(first) != 1 or len(embedding) != 1:
        raise ValueError(
            f"[tokenformer_neox] weights: expected one '...{_FIRST}' and one '...word_embeddings.weight'"
        )
    if isinstance(config, dict):
        config.setdefault("parameter_prefix", first[0].removesuffix(_FIRST))
        config.setdefault("embedding_name", embedding[0])
    return embedding[0]


def _prefix(config: Settings) -> str:
    return str(config.get("parameter_prefix", "sequential."))


SYSTEM = TokenFormerNeox()
