"""Config of the Mixtral mixture of experts: models/mixtral.py, docs/maths/moe.md."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.families.heads import attention_weights, head_faults, head_width, with_heads
from mudd_core.config.fields import LONGEST, opt, with_defaults


@dataclass(frozen=True)
class MixtralConfig:
    """Mixtral: RMSNorm, rotary positions, grouped key and value heads, SwiGLU experts behind a top-k router."""

    family: str = opt("mixtral", "model family", choices=("mixtral",))
    vocab_size: int = opt(0, "vocabulary of the embedding and head; 0 = from the tokenizer", "tokens", low=0)
    max_seq_len: int = opt(
        0, "longest sequence the model is built for; 0 = train.seq_len", "tokens", low=0, high=LONGEST
    )
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1, high=10_000)
    n_head: int = opt(4, "query heads", "heads", low=1)
    n_kv_head: int = opt(0, "key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
    d_ff: int = opt(704, "inner width of one expert", "channels", low=1)
    n_expert: int = opt(8, "experts of a layer", "experts", low=1)
    top_k: int = opt(2, "experts that work on a token", "experts", low=1)
    capacity_factor: float = opt(
        0.0,
        "slots an expert takes, over its fair share; the rest is dropped; 0 or less = nothing is ever dropped",
    )
    capacity_scope: str = opt(
        "sequence",
        "what the fair share is of: each sequence, or a logical shard",
        choices=("sequence", "shard"),
    )
    drop_policy: str = opt(
        "position", "which slots a full expert keeps: the first, or those of the largest gates",
        choices=("position", "probs"),
    )  # fmt: skip
    full_drop: str = opt(
        "passthrough", "a token that no expert takes adds its normalised state, or nothing",
        choices=("passthrough", "zero"),
    )  # fmt: skip
    aux_coef: float = opt(
        0.01, "weight of the load-balancing loss; training only", low=0.0, effect="training"
    )
    aux_form: str = opt(
        "pooled", "balance over all layers together (transformers), or a sum over layers (Megatron-LM)",
        choices=("pooled", "per_layer"), effect="training",
    )  # fmt: skip
    aux_scope: str = opt(
        "shard", "what balance averages over: each logical shard, or the whole batch in one graph run",
        choices=("shard", "batch"), effect="training",
    )  # fmt: skip
    z_coef: float = opt(
        0.0, "weight of the router's z-loss, summed over layers; training only", low=0.0, effect="training"
    )
    jitter: float = opt(
        0.0,
        "the router sees its input times numbers of 1 - jitter to 1 + jitter; training only",
        low=0.0,
        high=0.99,
        effect="training",
    )
    rope_base: float = opt(1000000.0, "base of the rotary wavelengths", low=1.0)
    norm_eps: float = opt(1e-5, "added to the mean square in RMSNorm", low=0.0)
    tie_embeddings: bool = opt(False, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")

    def matrix_weights(self) -> int:
        """Weights of the blocks that enter a matmul for every token: top_k experts of each layer."""
        experts = 3 * self.d_model * self.d_ff * self.top_k + self.d_model * self.n_expert
        return self.n_layer * (attention_weights(self) + experts)

    @property
    def decoding_note(self) -> str:
        """What decoding over a KV cache does otherwise than the full pass; empty if nothing."""
        if self.capacity_factor <= 0:
            return ""
        return (
            f"model.capacity_factor is {self.capacity_factor:g}, but decoding drops nothing: how full an expert of the "
            "whole sequence will be is not known there, so tokens may differ from the argmax of the full pass"
        )

    def settled(self) -> MixtralConfig:
        """The same model with zeros resolved, and with fields that have no effect here at their defaults."""
        inert = [] if self.aux_coef else ["aux_form", "aux_scope"]
        if self.capacity_factor <= 0:
            inert += ["capacity_factor", "capacity_scope", "drop_policy", "full_drop"]
        settled: MixtralConfig = with_defaults(with_heads(self), inert)
        return settled

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults and head_width(self) % 2:
            faults.append(
                f"model.d_head: expected an even width for rotary positions, got {head_width(self)}"
            )
        if self.top_k > min(self.n_expert, 64):
            faults.append(f"model.top_k: expected at most {min(self.n_expert, 64)} experts, got {self.top_k}")
        return faults
