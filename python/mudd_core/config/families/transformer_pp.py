"""Config of Transformer++: models/transformer_pp.py, docs/maths/transformer.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mudd_core.config.families.heads import (
    HeadSizes,
    attention_weights,
    head_faults,
    head_width,
    rotary_faults,
    with_heads,
)
from mudd_core.config.families.spans import layers_of, spans_of, spans_text
from mudd_core.config.fields import LONGEST, opt, with_defaults


@dataclass(frozen=True)
class TransformerPPConfig(HeadSizes):
    """Transformer++ (Llama): RMSNorm, rotary positions, SwiGLU, grouped key and value heads."""

    family: str = opt("transformer_pp", "model family", choices=("transformer_pp",))
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "RoPE theta, the base of the wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "epsilon that RMSNorm adds to the mean square", low=0.0)
    tie_embeddings: bool = opt(False, "the head and the embedding share one matrix (tied embeddings)")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")
    attn_bias: bool = opt(False, "add biases to the four projections of attention")
    mlp_bias: bool = opt(False, "add biases to the three projections of the feed-forward block")
    qkv_bias: bool = opt(False, "add biases to queries, keys and values, but not to the output", later=True)
    qk_norm: bool = opt(
        False, "apply RMSNorm with a learned gain to each query and key head, before rotation", later=True
    )
    rope_scaling: str = opt(
        "none",
        "RoPE frequencies for long sequences: linear = divide all by rope_factor; llama3 = divide "
        "only the slow ones",
        choices=("none", "linear", "llama3"),
        later=True,
    )
    rope_factor: float = opt(1.0, "number by which scaled RoPE frequencies are divided", low=1.0, later=True)
    rope_low_freq: float = opt(
        1.0,
        "llama3: divide frequencies with fewer turns than this within rope_original_len tokens by "
        "rope_factor",
        "turns",
        low=1e-6,
        later=True,
    )
    rope_high_freq: float = opt(
        4.0,
        "llama3: keep frequencies with more turns than this within rope_original_len tokens",
        "turns",
        low=1e-6,
        later=True,
    )
    rope_original_len: int = opt(
        8192, "llama3: longest sequence of the original training", "tokens", low=1, high=LONGEST, later=True
    )
    sliding_window: int = opt(
        0,
        "number of keys to which a query attends, with its own position; 0 = all keys up to it",
        "keys",
        low=0,
        later=True,
    )
    sliding_layers: str = opt(
        "", "layers with the sliding window, such as 0-3,7; empty = all", "", later=True
    )

    rope_local_base: float = opt(
        0.0,
        "RoPE theta in layers with the sliding window, without rope_scaling; 0 = as in the other layers",
        low=0.0,
        later=True,
    )
    qk_norm_whole: bool = opt(
        False,
        "let qk_norm normalize all heads together, with a gain for each channel of each head",
        later=True,
    )
    rope_fraction: float = opt(
        1.0,
        "fraction of each head that is rotated, an even number of channels",
        low=0.0,
        high=1.0,
        later=True,
    )
    joined_projections: bool = opt(
        False,
        "export q, k and v as one matrix, and gate and up as one, as in Hugging Face's phi3; they are separate here",
        later=True,
    )
    nope_layers: str = opt(
        "", "layers without rotary positions (NoPE), such as 3,7; empty = none", "", later=True
    )
    query_pre_attn_scalar: int = opt(
        0,
        "divide the attention scores by the square root of this; 0 = d_head",
        "channels",
        low=0,
        later=True,
    )
    activation: str = opt(
        "silu",
        "activation of the gate in the feed-forward block; gelu_tanh is Hugging Face's gelu_pytorch_tanh",
        choices=("silu", "gelu_tanh", "gelu_erf", "relu"),
        later=True,
    )
    norm_place: str = opt(
        "before",
        "RMSNorm before attention and feed-forward block, after them, or both",
        choices=("before", "after", "both"),
        later=True,
    )
    gain_offset: float = opt(
        0.0, "constant that is added to the gains of RMSNorm: 1 in Gemma", low=0.0, high=1.0, later=True
    )
    scale_embeddings: bool = opt(
        False, "multiply the embeddings of tokens by the square root of d_model", later=True
    )

    def matrix_weights(self) -> int:
        """Return the number of weights in the blocks that enter a matmul for every token."""
        return self.n_layer * (attention_weights(self) + 3 * self.d_model * self.d_ff)

    def settled(self) -> TransformerPPConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        inert = []
        if self.rope_scaling == "none":
            inert.append("rope_factor")
        if self.rope_scaling != "llama3":
            inert += ["rope_low_freq", "rope_high_freq", "rope_original_len"]
        if self.attn_bias:
            inert.append("qkv_bias")
        if not self.qk_norm:
            inert.append("qk_norm_whole")
        windowed = layers_of(self.sliding_layers, self.n_layer) if self.sliding_window else frozenset()
        spans = spans_of(windowed, self.n_layer) if windowed else ""
        is_same = self.rope_scaling == "none" and self.rope_local_base == self.rope_base
        if not windowed or is_same:
            inert.append("rope_local_base")
        if self.query_pre_attn_scalar == head_width(self):
            inert.append("query_pre_attn_scalar")
        nope = spans_text(self._without_rope())
        return with_defaults(with_heads(replace(self, sliding_layers=spans, nope_layers=nope)), inert)

    def layer_window(self, layer: int) -> int:
        """Return the number of keys that a query of a layer (from 0) sees; 0: all earlier ones."""
        return self.sliding_window if layer in layers_of(self.sliding_layers, self.n_layer) else 0

    def has_rope(self, layer: int) -> bool:
        """Return True if queries and keys of a layer (from 0) are rotated."""
        return layer not in self._without_rope()

    def _without_rope(self) -> frozenset[int]:
        return layers_of(self.nope_layers, self.n_layer) if self.nope_layers else frozenset()

    @property
    def is_normed_before(self) -> bool:
        """True if the input of each branch is normalized."""
        return self.norm_place != "after"

    @property
    def is_normed_after(self) -> bool:
        """True if the output of each branch is normalized before it is added to the residual stream."""
        return self.norm_place != "before"

    def score_scale(self) -> float:
        """Return the factor of query times key; 0: 1 / sqrt(d_head)."""
        return 1.0 / math.sqrt(self.query_pre_attn_scalar) if self.query_pre_attn_scalar else 0.0

    def embedding_scale(self) -> float:
        """Return the factor of the embeddings of tokens."""
        return math.sqrt(self.d_model) if self.scale_embeddings else 1.0

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults:
            faults += rotary_faults(self.rope_fraction, head_width(self))
        if 0 < self.rope_local_base < 1:
            faults.append(f"model.rope_local_base: expected 0 or at least 1, got {self.rope_local_base:g}")
        if self.rope_scaling == "llama3" and not self.rope_low_freq < self.rope_high_freq:
            faults.append(
                f"model.rope_high_freq: expected more than model.rope_low_freq ({self.rope_low_freq:g}), got "
                f"{self.rope_high_freq:g}"
            )
        for name in ("sliding_layers", "nope_layers"):
            try:
                if spans := getattr(self, name):
                    layers_of(spans, self.n_layer)
            except ValueError as error:
                faults.append(f"model.{name}: {error}")
        return faults
