"""Config of GPT-2; the page is models/gpt2.py."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.families.heads import attention_weights, head_faults
from mudd_core.config.fields import opt


@dataclass(frozen=True)
class GPT2Config:
    """GPT-2: LayerNorm, learned positions, gelu_new, biases, the head tied to the embedding, no dropout."""

    family: str = opt("gpt2", "model family", choices=("gpt2",))
    vocab_size: int = opt(0, "vocabulary of the embedding and head; 0 = from the tokenizer", "tokens", low=0)
    max_seq_len: int = opt(0, "number of learned positions; 0 = train.seq_len", "tokens", low=0)
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1)
    n_head: int = opt(4, "attention heads", "heads", low=1)
    n_kv_head: int = opt(0, "key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
    d_ff: int = opt(1024, "inner width of the feed-forward block", "channels", low=1)
    norm_eps: float = opt(1e-5, "added to the variance in LayerNorm", low=0.0)
    tie_embeddings: bool = opt(True, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices and embeddings", low=0.0)

    def matrix_weights(self) -> int:
        """Weights of the blocks that enter a matrix product for every token."""
        return self.n_layer * (attention_weights(self) + 2 * self.d_model * self.d_ff)

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""
        return head_faults(self)
