"""Small models of each family with their PyTorch references, for the model tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from reference import torch_models as tm
from reference.bounds import GRADIENT
from small_muddformers import MUDDFORMERS
from small_mups import MUPS
from small_tokenformers import TOKENFORMERS
from small_transformers import MIXTURES, TRANSFORMERS

Array = NDArray[Any]

# name -> (our config, the reference's). Widths that are not a multiple of a vector, groups, tied and untied heads.
CASES: dict[str, tuple[Any, tm.Config]] = {
    **TRANSFORMERS,
    **MUDDFORMERS,
    **TOKENFORMERS,
    **MIXTURES,
    **MUPS,
}

# Sizes of a mixture whose experts ranks may share: an expert has whole blocks of 4,096 elements.
DEALT = {
    "vocab_size": 61,
    "max_seq_len": 16,
    "d_model": 64,
    "n_head": 4,
    "n_kv_head": 2,
    "d_ff": 64,
    "n_expert": 8,
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


def require_gradients(got: Mapping[str, Any], want: Mapping[str, Array]) -> None:
    """Require the gradients of a reference in float64."""
    largest = max(np.abs(gradient).max() for gradient in want.values())
    for key, gradient in want.items():
        # Where the exact gradient is zero (a key bias moves all scores of a row alike), only rounding remains.
        scale = max(np.abs(gradient).max(), 5e-3 * largest)
        assert np.abs(got[key] - gradient).max() <= GRADIENT * scale, key


def worst(got: Any, want: Any) -> float:
    """Return the largest difference divided by the largest entry of want."""
    return float(np.abs(np.asarray(got, np.float64) - want).max() / max(1e-30, np.abs(want).max()))
