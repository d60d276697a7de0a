"""Small models of each family with their PyTorch references, for the model tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core.config import (
    GPT2Config,
    MixtralConfig,
    MUDDFormerConfig,
    MupConfig,
    TokenFormerConfig,
    TransformerPPConfig,
)
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from reference import torch_models as tm
from reference.torch_layered import Layered
from reference.torch_mixtral import Mixtral
from reference.torch_muddformer import MuddConfig, MuddMixture
from reference.torch_mup import Mup
from reference.torch_neox import Neox
from reference.torch_tokenformer import DenseBaseline, Tokenformer

Array = NDArray[Any]

# name -> (our config, the reference's). Widths that are not a multiple of a vector, groups, tied and untied heads.
CASES: dict[str, tuple[Any, tm.Config]] = {
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

_MUP_SIZES = {"vocab_size": 61, "max_seq_len": 40, "n_layer": 2, "d_base": 12}
CASES |= {
    "mup": (
        MupConfig(**_MUP_SIZES, d_model=36, d_head=12, qk_scale=1 / 12),
        Mup(61, 2, 36, 3, 144, 1 / 12, 40),
    ),
    "mup_swiglu_mqa": (  # one gain per norm, biases, one key head, scores without softmax
        MupConfig(
            **_MUP_SIZES,
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
            **_MUP_SIZES,
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


def make(name: str, seed: int = 0, *, whole_batch: bool = False) -> tuple[Model, tm.Config, dict[str, Array]]:
    """Return our model with the reference's random weights, the reference's config, and the weights.

    whole_batch: average auxiliary losses over the batch, like the reference, for any number of shards.
    """
    ours, theirs = CASES[name]
    if whole_batch and getattr(ours, "n_expert", 0):
        ours = dataclasses.replace(ours, aux_scope="batch")
    weights = tm.random_params(theirs, seed=seed, std=getattr(theirs, "std", 0.08))
    params = {k: np.asarray(v, np.float32) for k, v in weights.items()}
    model = Model(ours)
    assert set(params) == set(model.parameters)
    for key, value in params.items():
        model.set_parameter(key, value)
    return model, theirs, params


def make_batch(
    vocab: int, samples: int, length: int, seed: int = 1, ignored: bool = True
) -> dict[str, Array]:
    """Return random inputs and targets; a few targets are ignored."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, vocab, (samples, length)).astype(np.int32)
    if ignored and length > 2:
        targets[0, 1], targets[-1, -1] = -1, -100
    return {"inputs": rng.integers(0, vocab, (samples, length)).astype(np.int32), "targets": targets}


def make_batches(vocab: int | str, count: int, *, samples: int, length: int) -> list[dict[str, Array]]:
    """Return batches from seeds 0, 1, ...; vocab: the size, or the name of a case."""
    size = CASES[vocab][0].vocab_size if isinstance(vocab, str) else vocab
    return [make_batch(size, samples, length, seed=seed) for seed in range(count)]


def state(engine: Engine) -> dict[str, Array]:
    """Return a copy of the weights and moments."""
    return {key: np.array(value) for key, value in engine.state_tensors().items()}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Return True if b has the arrays of a."""
    return all(np.array_equal(a[name], b[name]) for name in a)


def worst(got: Any, want: Any) -> float:
    """Return the largest difference divided by the largest entry of want."""
    return float(np.abs(np.asarray(got, np.float64) - want).max() / max(1e-30, np.abs(want).max()))
