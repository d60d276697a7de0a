"""Small models of the family mup, with the configs of their PyTorch references."""

from __future__ import annotations

from typing import Any

from mudd_core.config import MupConfig
from reference import torch_models as tm
from reference.torch_mup import Mup

_SIZES = {"vocab_size": 61, "max_seq_len": 40, "n_layer": 2, "d_base": 12}
MUPS: dict[str, tuple[Any, tm.Config]] = {
    "mup": (
        MupConfig(**_SIZES, d_model=36, d_head=12, qk_scale=1 / 12),
        Mup(61, 2, 36, 3, 144, 1 / 12, 40),
    ),
    "mup_swiglu_mqa": (  # one gain per norm, biases, one key head, scores without softmax
        MupConfig(
            **_SIZES,
            d_model=32,
            d_head=8,
            ff_multiple=2.67,
            qk_scale=0.3,
            kv_mqa=True,
            attn_act_name="norm_sqrelu",
            ff_act_name="swiglu",
            e_norm=True,
            qk_norm=True,
            norm_gains=True,
            norm_gains_type="scalar",
            norm_eps=0.05,  # scores of a small model are near zero, where the slope is steep and amplifies rounding
            proj_biases=True,
        ),
        Mup(
            61,
            2,
            32,
            4,
            85,
            0.3,
            40,
            kv_heads=1,
            scores="norm_sqrelu",
            norm_eps=0.05,
            activation="swiglu",
            embed_norm=True,
            qk_norm=True,
            gains=1,
            biases=True,
        ),
    ),
    "mup_elu": (  # vector gains, no positions, sums over the window
        MupConfig(
            **_SIZES,
            d_model=24,
            d_head=12,
            qk_scale=0.2,
            rotary_base=0.0,
            attn_act_name="elu",
            ff_act_name="sqrelu",
            qk_norm=True,
            norm_gains=True,
        ),
        Mup(
            61,
            2,
            24,
            2,
            96,
            0.2,
            40,
            scores="elu",
            activation="sqrelu",
            rope_base=0.0,
            qk_norm=True,
            gains=2,
        ),
    ),
}
