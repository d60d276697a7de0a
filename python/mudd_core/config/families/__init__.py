"""The frozen config of each model family; `family` names the module in models/. How to add one: docs/adding.md."""

from __future__ import annotations

from mudd_core.config.families.gpt2 import GPT2Config
from mudd_core.config.families.heads import head_width, kv_heads
from mudd_core.config.families.mixtral import MixtralConfig
from mudd_core.config.families.model_config import ModelConfig, TiedHead
from mudd_core.config.families.muddformer import MUDDFormerConfig
from mudd_core.config.families.mup import MupConfig
from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.config.families.transformer_pp import TransformerPPConfig

__all__ = [
    "FAMILIES",
    "GPT2Config",
    "MUDDFormerConfig",
    "MixtralConfig",
    "MixtureConfig",
    "ModelConfig",
    "MupConfig",
    "TiedHead",
    "TokenFormerConfig",
    "TransformerPPConfig",
    "head_width",
    "kv_heads",
    "mixture_of",
]

MixtureConfig = MixtralConfig | MUDDFormerConfig  # families that can have experts
FAMILIES: dict[str, type[ModelConfig]] = {
    "transformer_pp": TransformerPPConfig,
    "gpt2": GPT2Config,
    "muddformer": MUDDFormerConfig,
    "mup": MupConfig,
    "tokenformer": TokenFormerConfig,
    "mixtral": MixtralConfig,
}


def mixture_of(model: ModelConfig) -> MixtureConfig | None:
    """The config if its feed-forward parts are mixtures of experts, else None."""
    return model if isinstance(model, MixtureConfig) and model.n_expert else None
