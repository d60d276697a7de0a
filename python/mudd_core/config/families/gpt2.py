"""Config of GPT-2 and GPT-NeoX: models/gpt2.py, docs/maths/transformer.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mudd_core.config.families.heads import (
    HeadSizes,
    attention_weights,
    head_faults,
    head_width,
    rotary_faults,
    with_heads,
)
from mudd_core.config.fields import LONGEST, opt, with_defaults


@dataclass(frozen=True)
class GPT2Config(HeadSizes):
    """GPT-2: LayerNorm, learned positions, gelu_new, biases, the head tied to the embedding, dropout.

    By option GPT-NeoX: rotary positions, parallel blocks.
    """

    family: str = opt("gpt2", "model family", choices=("gpt2",))
    max_seq_len: int = opt(0, "number of learned positions; 0 = train.seq_len", "tokens", low=0, high=LONGEST)
    n_head: int = opt(4, "number of attention heads", "heads", low=1)
    d_ff: int = opt(1024, "inner width of the feed-forward block", "channels", low=1)
    activation: str = opt(
        "gelu_tanh",
        "activation of the feed-forward block; gelu_tanh is Hugging Face's gelu_new",
        choices=("gelu_tanh", "gelu_erf", "relu", "silu"),
    )
    scale_scores: bool = opt(True, "divide the attention scores by the square root of the head width")
    scale_by_layer: bool = opt(False, "also divide the scores of block l (from 0) by l + 1")
    norm_eps: float = opt(1e-5, "epsilon that LayerNorm adds to the variance", low=0.0)
    tie_embeddings: bool = opt(True, "the head and the embedding share one matrix (tied embeddings)")
    init_std: float = opt(
        0.02, "standard deviation of the initial matrices and embeddings", low=0.0, effect="start"
    )
    scale_residual_init: bool = opt(
        False,
        "initialize matrices that write to the residual stream with standard deviation init_std / "
        "sqrt(2 n_layer)",
        later=True,
        effect="start",
    )

    embd_dropout: float = opt(
        0.0,
        "dropout probability for the sum of the embeddings; training only",
        low=0.0,
        high=1.0,
        later=True,
        effect="training",
    )
    attn_dropout: float = opt(
        0.0,
        "dropout probability for the attention probabilities; training only",
        low=0.0,
        high=1.0,
        later=True,
        effect="training",
    )
    resid_dropout: float = opt(
        0.0,
        "dropout probability for outputs that are added to the residual stream; training only",
        low=0.0,
        high=1.0,
        later=True,
        effect="training",
    )

    positions: str = opt(
        "learned",
        "learned table of positions, or rotary positions",
        choices=("learned", "rotary"),
        later=True,
    )
    rope_base: float = opt(10000.0, "RoPE theta, the base of the wavelengths", low=1.0, later=True)
    rope_fraction: float = opt(
        1.0,
        "fraction of each head that is rotated, an even number of channels",
        low=0.0,
        high=1.0,
        later=True,
    )
    parallel: bool = opt(
        False, "let attention and feed-forward block read the same states and add both outputs", later=True
    )
    attn_bias: bool = opt(True, "add biases to the four projections of attention", later=True)

    @property
    def positions_end(self) -> bool:
        """True if positions end at max_seq_len, because they come from a table."""
        return self.positions == "learned"

    def matrix_weights(self) -> int:
        """Return the number of weights in the blocks that enter a matmul for every token."""
        return self.n_layer * (attention_weights(self) + 2 * self.d_model * self.d_ff)

    def score_scale(self, layer: int) -> float:
        """Return the factor of query times key in a block (from 0)."""
        scale = 1.0 / math.sqrt(head_width(self)) if self.scale_scores else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    def residual_std(self) -> float:
        """Return the standard deviation of the matrices that write to the residual stream."""
        return self.init_std / math.sqrt(2 * self.n_layer) if self.scale_residual_init else self.init_std

    def settled(self) -> GPT2Config:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        inert = ("rope_base", "rope_fraction") if self.positions == "learned" else ()
        return with_defaults(with_heads(self), inert)

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        rates = {name: getattr(self, name) for name in ("embd_dropout", "attn_dropout", "resid_dropout")}
        dropped = [f"model.{k}: expected less than 1, got {v!r}" for k, v in rates.items() if not v < 1]
        heads = head_faults(self)
        if not heads and self.positions == "rotary":
            heads = rotary_faults(self.rope_fraction, head_width(self))
        return heads + dropped
