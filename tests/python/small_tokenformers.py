"""Small models of the family tokenformer, with the configs of their PyTorch references."""

from __future__ import annotations

from typing import Any

from mudd_core.config import TokenFormerConfig
from reference import torch_models as tm
from reference.torch_tokenformer import DenseBaseline, Tokenformer

TOKENFORMERS: dict[str, tuple[Any, tm.Config]] = {
    "tokenformer": (
        TokenFormerConfig(vocab_size=61, max_seq_len=40, d_model=36, n_layer=2, n_head=3, slot_num=21),
        Tokenformer(61, 2, 36, 3, (21, 21, 84), 40),
    ),
    "tokenformer_neox": (
        TokenFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=32,
            n_layer=2,
            n_head=4,
            slot_num=20,
            proj_slot_num=17,
            ffn_slot_num=45,
            gelu="erf",
            slot_eps=0.0,
            positions="rotary",
            gain_offset=0.0,
            normalize_logits=False,
        ),
        Tokenformer(
            61,
            2,
            32,
            4,
            (20, 17, 45),
            40,
            gelu="none",
            eps=0.0,
            positions="rotary",
            gain_offset=0.0,
            divide_logits=False,
        ),
    ),
    "tokenformer_options": (
        TokenFormerConfig(
            vocab_size=61,
            max_seq_len=40,
            d_model=32,
            n_layer=1,
            n_head=4,
            slot_num=20,
            normalize_type="gelu_l2_norm",
            zoom_dim=7,
            qkv_scale_factor=0.7,
            proj_scale_factor=1.3,
            ffn_scale_factor=0.9,
            qkv_bias=True,
            proj_bias=True,
            ffn_bias=True,
            positions="learned",
            tie_embeddings=False,
            keep_scores=False,
        ),
        Tokenformer(
            61,
            1,
            32,
            4,
            (20, 20, 80),
            40,
            norm="gelu_l2_norm",
            eps=1e-8,
            zoom=7,
            scales=(0.7, 1.3, 0.9),
            biases=True,
            positions="learned",
            tied=False,
        ),
    ),
    "tokenformer_baseline": (
        TokenFormerConfig(
            vocab_size=61, max_seq_len=40, d_model=36, n_layer=2, n_head=3, block="dense", d_ff=52
        ),
        DenseBaseline(61, 2, 36, 3, 52),
    ),
}
