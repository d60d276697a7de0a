"""Fields of the families whose feed-forward part can be a mixture of experts: docs/maths/moe.md."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from mudd_core.config.families.model_config import Decoding
from mudd_core.config.fields import opt

MOST_CHOSEN = 64  # most experts per token, a limit of the router's kernel


@dataclass(frozen=True)
class ExpertFields(Decoding):
    """Router, capacity and auxiliary losses of SwiGLU experts; a family may override a default."""

    n_expert: int = opt(0, "number of experts per layer; 0 = a dense feed-forward part", "experts", low=0)
    top_k: int = opt(2, "number of experts per token (top-k)", "experts", low=1)
    capacity_factor: float = opt(
        0.0,
        "largest load of an expert, as a multiple of an even load; further tokens are dropped; 0 or less = never drop",
    )
    capacity_scope: str = opt(
        "sequence",
        "tokens over which the even load is computed: each sequence or each logical shard",
        choices=("sequence", "shard"),
    )
    drop_policy: str = opt(
        "position",
        "tokens that a full expert keeps: the first ones, or the ones with the largest gates",
        choices=("position", "probs"),
    )
    full_drop: str = opt(
        "passthrough",
        "output for a token that all its experts drop: passthrough = its normalised input; zero = zero",
        choices=("passthrough", "zero"),
    )
    aux_coef: float = opt(0.0, "weight of the load-balancing loss; training only", low=0.0, effect="training")
    aux_form: str = opt(
        "pooled",
        "load-balancing loss: pooled = one over all layers (transformers); per_layer = a sum over "
        "layers (Megatron-LM)",
        choices=("pooled", "per_layer"),
        effect="training",
    )
    aux_scope: str = opt(
        "shard",
        "tokens over which the load-balancing loss averages: each logical shard, or the whole batch "
        "(needs train.micro_batch_size=0)",
        choices=("shard", "batch"),
        effect="training",
    )
    z_coef: float = opt(
        0.0, "weight of the router's z-loss, summed over layers; training only", low=0.0, effect="training"
    )
    jitter: float = opt(
        0.0,
        "multiply the router's input by random values from 1 - jitter to 1 + jitter; training only",
        low=0.0,
        high=0.99,
        effect="training",
    )

    @property
    def decoding_note(self) -> str:
        """Difference between decoding with a KV cache and the full forward pass; empty without one."""
        if self.capacity_factor <= 0:
            return ""
        return (
            f"model.capacity_factor is {self.capacity_factor:g}, but decoding drops nothing, because "
            "the load of the whole sequence is not known yet; tokens may differ from the argmax of "
            "a full forward pass"
        )

    def active_weights(self, d_model: int, d_ff: int) -> int:
        """Return the weights of one layer's mixture that enter a matmul for every token: the router and top_k
        experts.
        """
        return d_model * (3 * d_ff * self.top_k + self.n_expert)

    def inert_expert_fields(self) -> list[str]:
        """Return the names of expert fields without effect in this model."""
        if not self.n_expert:
            return [field.name for field in dataclasses.fields(ExpertFields)]
        inert = [] if self.aux_coef else ["aux_form", "aux_scope"]
        if self.capacity_factor <= 0:
            inert += ["capacity_factor", "capacity_scope", "drop_policy", "full_drop"]
        return inert

    def expert_faults(self) -> list[str]:
        """Return the broken rules between these fields, one message each."""
        if self.n_expert:
            most = min(self.n_expert, MOST_CHOSEN)
            return [f"model.top_k: expected at most {most} experts, got {self.top_k}"] * (self.top_k > most)
        return [
            f"model.{field.name}: expected its default {field.default!r} without experts, got "
            f"{getattr(self, field.name)!r}; set model.n_expert"
            for field in dataclasses.fields(ExpertFields)
            if getattr(self, field.name) != field.default
        ]
