"""Config of Transformer++: models/transformer_pp.py, docs/maths/transformer.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from mudd_core.config.families.heads import HeadSizes, attention_weights, head_faults, head_width, with_heads
from mudd_core.config.fields import LONGEST, opt, with_defaults

_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@cache
def layers_of(spans: str, n_layer: int) -> frozenset[int]:
    """Return the layers of spans such as "0-3,7" (from 0); all layers for an empty string.

    Raise ValueError for a malformed string, a reversed span, or a layer that the model does not have.
    """
    if not spans:
        return frozenset(range(n_layer))
    found: set[int] = set()
    for span in spans.split(","):
        match = _SPAN.fullmatch(span.strip())
        if match is None:
            raise ValueError(f"expected spans of layers such as 0-3,7, got '{spans}'")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < n_layer:
            raise ValueError(f"expected layers from 0 to {n_layer - 1}, the smaller one first, got '{span}'")
        found.update(range(first, last + 1))
    return frozenset(found)


def spans_of(layers: Iterable[int], n_layer: int) -> str:
    """Return the shortest spans of these layers; an empty string for all n_layer layers."""
    ordered = sorted(set(layers))
    if ordered == list(range(n_layer)):
        return ""
    spans: list[list[int]] = []
    for layer in ordered:
        if spans and spans[-1][1] == layer - 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


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
        windowed = layers_of(self.sliding_layers, self.n_layer) if self.sliding_window else frozenset()
        spans = spans_of(windowed, self.n_layer) if windowed else ""
        return with_defaults(with_heads(replace(self, sliding_layers=spans)), inert)

    def layer_window(self, layer: int) -> int:
        """Return the number of keys that a query of a layer (from 0) sees; 0: all earlier ones."""
        return self.sliding_window if layer in layers_of(self.sliding_layers, self.n_layer) else 0

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults and head_width(self) % 2:
            faults.append(
                f"model.d_head: expected an even width for rotary positions, got {head_width(self)}"
            )
        if self.rope_scaling == "llama3" and not self.rope_low_freq < self.rope_high_freq:
            faults.append(
                f"model.rope_high_freq: expected more than model.rope_low_freq ({self.rope_low_freq:g}), got "
                f"{self.rope_high_freq:g}"
            )
        try:
            layers_of(self.sliding_layers, self.n_layer)
        except ValueError as error:
            faults.append(f"model.sliding_layers: {error}")
        return faults
