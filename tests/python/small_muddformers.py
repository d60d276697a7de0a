"""Small models of the family muddformer, with the configs of their PyTorch references."""

from __future__ import annotations

from typing import Any

from mudd_core.config import MUDDFormerConfig
from reference import torch_models as tm
from reference.torch_muddformer import MuddConfig, MuddMixture

MUDDFORMERS: dict[str, tuple[Any, tm.Config]] = {
    "mudd": (
        MUDDFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=3,
            n_head=6,
            n_kv_head=2,
            d_ff=256,
            init_std=0.02,
        ),
        MuddConfig(
            61, 3, 36, 6, 2, (128, 256, 384), hidden=(64, 64, 64), sources=((0, 1), (0, 1, 2), (0, 1, 2, 3))
        ),
    ),
    "mudd_norms": (
        MUDDFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=32,
            n_layer=2,
            n_head=4,
            d_ff=40,
            ffn_realloc=False,
            qk_norm=True,
            prenorm=True,
            postnorm=True,
            hidden_round=False,
            tie_embeddings=True,
        ),
        MuddConfig(
            61,
            2,
            32,
            4,
            4,
            (40, 40),
            hidden=(8, 12),
            sources=((0, 1), (0, 1, 2)),
            prenorm=True,
            postnorm=True,
            qk_norm=True,
            tied=True,
        ),
    ),
    "mudd_pythia": (
        MUDDFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=32,
            n_layer=2,
            n_head=4,
            d_ff=52,
            ffn_realloc=False,
            block="pythia",
            rope_fraction=0.25,
            norm_eps=1e-5,
            first_norms=1,
            hidden_round=False,
            last_expand=1,
            activation="gelu_erf",
        ),
        MuddConfig(
            61,
            2,
            32,
            4,
            4,
            (52, 52),
            hidden=(8, 3),
            sources=((0, 1), (0, 1, 2)),
            pythia=True,
            rope_fraction=0.25,
            norm_eps=1e-5,
            first_norms=1,
            gelu="erf",
        ),
    ),
    "mudd_experts": (
        MUDDFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=3,
            n_head=6,
            n_kv_head=2,
            d_ff=20,
            prenorm=True,
            postnorm=True,
            hidden_round=False,
            init_std=0.02,
            n_expert=5,
            aux_coef=0.05,
            z_coef=0.01,
        ),
        MuddMixture(
            61,
            3,
            36,
            6,
            2,
            (20, 20, 20),
            hidden=(8, 12, 16),
            sources=((0, 1), (0, 1, 2), (0, 1, 2, 3)),
            prenorm=True,
            postnorm=True,
            experts=5,
            aux_coef=0.05,
            z_coef=0.01,
        ),
    ),
}
