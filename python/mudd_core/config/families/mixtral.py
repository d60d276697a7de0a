"""Config of the Mixtral and Qwen3-MoE mixtures of experts: models/mixtral.py, docs/maths/moe.md."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.families.experts import ExpertFields
from mudd_core.config.families.heads import HeadSizes, attention_weights, head_faults, head_width, with_heads
from mudd_core.config.fields import opt, with_defaults


@dataclass(frozen=True)
class _Fields(HeadSizes):
    """Fields that are listed before the expert fields."""

    family: str = opt("mixtral", "model family", choices=("mixtral",))
    d_ff: int = opt(704, "inner width of one expert", "channels", low=1)


@dataclass(frozen=True)
class MixtralConfig(ExpertFields, _Fields):
    """Mixtral: RMSNorm, rotary positions, grouped key and value heads, SwiGLU experts after a top-k router."""

    n_expert: int = opt(8, "number of experts per layer", "experts", low=1)
    aux_coef: float = opt(
        0.01, "weight of the load-balancing loss; training only", low=0.0, effect="training"
    )
    rope_base: float = opt(1000000.0, "RoPE theta, the base of the wavelengths", low=1.0)
    norm_eps: float = opt(1e-5, "epsilon that RMSNorm adds to the mean square", low=0.0)
    tie_embeddings: bool = opt(False, "the head and the embedding share one matrix (tied embeddings)")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")
    qk_norm: bool = opt(
        False,
        "apply RMSNorm with a learned gain to each query and key head, before rotation (Qwen3-MoE)",
        later=True,
    )

    def matrix_weights(self) -> int:
        """Return the weights of the blocks that enter a matmul for every token: top_k experts of each layer."""
        experts = self.active_weights(self.d_model, self.d_ff)
        return self.n_layer * (attention_weights(self) + experts)

    def settled(self) -> MixtralConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""
        return with_defaults(with_heads(self), self.inert_expert_fields())

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        faults = head_faults(self)
        if not faults and head_width(self) % 2:
            faults.append(
                f"model.d_head: expected an even width for rotary positions, got {head_width(self)}"
            )
        return faults + self.expert_faults()
