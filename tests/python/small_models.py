"""Small models of each family with their PyTorch counterparts, shared by the model tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core.config import GPT2Config, TransformerPPConfig
from mudd_core.model import Model
from reference import torch_models as tm

Array = NDArray[Any]

# name -> (our config, the reference's). Widths that are no multiple of a vector, groups, tied and untied heads.
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
    "gpt2": (
        GPT2Config(vocab_size=61, max_seq_len=40, d_model=36, n_layer=2, n_head=3, d_ff=52),
        tm.Gpt2Config(vocab_size=61, layers=2, d_model=36, heads=3, ffn=52, max_positions=40),
    ),
}


def make(name: str, seed: int = 0) -> tuple[Model, tm.Config, dict[str, Array]]:
    """Our model with the reference's random weights, the reference's config, and the weights."""
    ours, theirs = CASES[name]
    params = {k: np.asarray(v, np.float32) for k, v in tm.random_params(theirs, seed=seed).items()}
    model = Model(ours)
    assert set(params) == set(model.parameters)
    for key, value in params.items():
        model.set_parameter(key, value)
    return model, theirs, params


def make_batch(
    vocab: int, samples: int, length: int, seed: int = 1, ignored: bool = True
) -> dict[str, Array]:
    """Random inputs and targets; a few targets are ignored."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, vocab, (samples, length)).astype(np.int32)
    if ignored and length > 2:
        targets[0, 1], targets[-1, -1] = -1, -100
    return {"inputs": rng.integers(0, vocab, (samples, length)).astype(np.int32), "targets": targets}
