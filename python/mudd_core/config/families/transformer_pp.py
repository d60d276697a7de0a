"""Config of Transformer++: models/transformer_pp.py, docs/maths/transformer.md."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.families.heads import attention_weights, head_faults, head_width, with_heads
from mudd_core.config.families.sizes import HeadSizes
from mudd_core.config.fields import opt


@dataclass(frozen=True)
class TransformerPPConfig(HeadSizes):
    """Transformer++ (Llama): RMSNorm, rotary positions, SwiGLU, grouped key and value heads."""

    family: str = opt("transformer_pp", "model family", choices=("transformer_pp",))
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "base of the rotary wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "added to the mean square in RMSNorm", low=0.0)
    tie_embeddings: bool = opt(False, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")
    attn_bias: bool = opt(False, "the four projections of attention have biases")
    mlp_bias: bool = opt(False, "the three projections of the feed-forward block have biases")

    def matrix_weights(self) -> int:
        """Weights of the blocks that enter a matmul for every token."""
        return self.n_layer * (attention_weights(self) + 3 * self.d_model * self.d_ff)

    def settled(self) -> TransformerPPConfig:
        """The same model with zeros resolved, and with fields that have no effect here at their defaults."""
        return with_heads(self)

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults and head_width(self) % 2:
            faults.append(
                f"model.d_head: expected an even width for rotary positions, got {head_width(self)}"
            )
        return faults
