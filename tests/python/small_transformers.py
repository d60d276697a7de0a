"""Small models of the families transformer_pp, gpt2 and mixtral, with the configs of their PyTorch references."""

from __future__ import annotations

from typing import Any

from mudd_core.config import GPT2Config, MixtralConfig, TransformerPPConfig
from reference import torch_models as tm
from reference.torch_layered import Layered
from reference.torch_mixtral import Mixtral
from reference.torch_neox import Neox

TRANSFORMERS: dict[str, tuple[Any, tm.Config]] = {
    "llama_gqa": (
        TransformerPPConfig(
            vocab_size=61, max_seq_len=40, d_model=36, n_layer=3, n_head=6, n_kv_head=2, d_ff=52
        ),
        tm.LlamaConfig(vocab_size=61, layers=3, d_model=36, heads=6, kv_heads=2, ffn=52),
    ),
    "llama_tied": (
        TransformerPPConfig(
            vocab_size=67, max_seq_len=40, d_model=32, n_layer=2, n_head=4, d_ff=40, tie_embeddings=True
        ),
        tm.LlamaConfig(vocab_size=67, layers=2, d_model=32, heads=4, kv_heads=4, ffn=40, tied=True),
    ),
    "gemma": (
        TransformerPPConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=3,
            n_head=3,
            n_kv_head=1,
            d_head=10,
            d_ff=52,
            rope_base=1e6,
            tie_embeddings=True,
            qk_norm=True,
            sliding_window=5,
            sliding_layers="0,2",
            rope_local_base=500.0,
            query_pre_attn_scalar=7,
            activation="gelu_tanh",
            norm_place="both",
            gain_offset=1.0,
            scale_embeddings=True,
        ),
        Layered(
            61, 3, 36, 3, 1, 10, 52, window=5, windowed=(0, 2), rope_base=1e6, local_base=500.0, scalar=7
        ),
    ),
    "olmo": (  # and a layer without rotary positions
        TransformerPPConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=2,
            n_head=4,
            n_kv_head=2,
            d_head=10,
            d_ff=52,
            tie_embeddings=True,
            qk_norm=True,
            qk_norm_whole=True,
            norm_place="after",
            nope_layers="1",
        ),
        Layered(
            *(61, 2, 36, 4, 2, 10, 52),
            window=40,
            windowed=(),
            rope_base=1e4,
            local_base=1e4,
            scalar=10,
            gain_offset=0.0,
            is_normed_before=False,
            is_qk_norm_whole=True,
            is_gelu=False,
            is_embedding_scaled=False,
            nope=(1,),
        ),
    ),
    "gpt2": (
        GPT2Config(vocab_size=61, max_seq_len=40, d_model=36, n_layer=2, n_head=3, d_ff=52),
        tm.Gpt2Config(vocab_size=61, layers=2, d_model=36, heads=3, ffn=52, max_positions=40),
    ),
    "neox": (
        GPT2Config(
            vocab_size=61,
            max_seq_len=40,
            d_model=32,
            n_layer=2,
            n_head=4,
            d_ff=52,
            activation="gelu_erf",
            tie_embeddings=False,
            positions="rotary",
            rope_fraction=0.25,
            parallel=True,
        ),
        Neox(61, 2, 32, 4, 52, rotated=2),
    ),
}

MIXTURES: dict[str, tuple[Any, tm.Config]] = {
    "mixtral": (
        MixtralConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=3,
            n_head=6,
            n_kv_head=2,
            d_ff=20,
            n_expert=5,
            aux_coef=0.05,
            z_coef=0.01,
        ),
        Mixtral(61, 3, 36, 6, 2, 20, norm_eps=1e-5, rope_base=1e6, experts=5, aux_coef=0.05, z_coef=0.01),
    ),
    "mixtral_qk_norm": (  # Qwen3-MoE: more experts per token, norms of query and key heads
        MixtralConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=36,
            n_layer=2,
            n_head=6,
            n_kv_head=2,
            d_ff=12,
            n_expert=7,
            top_k=3,
            aux_coef=0.05,
            qk_norm=True,
        ),
        Mixtral(61, 2, 36, 6, 2, 12, experts=7, top_k=3, aux_coef=0.05, qk_norm=True),
    ),
}
