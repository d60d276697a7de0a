"""The frozen config of each model family, and their registry. How to add one: docs/adding.md, docs/your-own.md."""

from __future__ import annotations

from mudd_core.config.families.family import (
    FAMILIES,
    Family,
    config_class_for_saved,
    family_of,
    in_family,
    named_family,
    own_family,
    register_family,
)
from mudd_core.config.families.gpt2 import GPT2Config
from mudd_core.config.families.heads import FamilyConfig, head_width, kv_heads
from mudd_core.config.families.mixtral import MixtralConfig
from mudd_core.config.families.model_config import ModelConfig, TiedHead
from mudd_core.config.families.muddformer import MUDDFormerConfig
from mudd_core.config.families.mup import MupConfig
from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.config.families.transformer_pp import TransformerPPConfig

__all__ = [
    "FAMILIES",
    "Family",
    "FamilyConfig",
    "GPT2Config",
    "MUDDFormerConfig",
    "MixtralConfig",
    "MixtureConfig",
    "ModelConfig",
    "MupConfig",
    "TiedHead",
    "TokenFormerConfig",
    "TransformerPPConfig",
    "config_class_for_saved",
    "family_of",
    "head_width",
    "in_family",
    "kv_heads",
    "mixture_of",
    "named_family",
    "own_family",
    "register_family",
]

MixtureConfig = MixtralConfig | MUDDFormerConfig  # families that can have experts


def mixture_of(model: ModelConfig) -> MixtureConfig | None:
    """The config, if its feed-forward parts are mixtures of experts; otherwise None."""
    return model if isinstance(model, MixtureConfig) and model.n_expert else None
