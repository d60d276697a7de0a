"""The KV cache that growing prompts share: tokens and logits have the bits of a generation without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mudd_core.config import LoraConfig, TransformerPPConfig
from mudd_core.config.families import named_family
from mudd_core.engine.generate import sampler
from mudd_core.engine.model import Model
from mudd_core.engine.prefix_cache import PrefixCache
from own_cases import STATE_SPACE
from small_models import CASES, make

# Each prompt shares a prefix with the one before; the third also replaces ids in the middle, the fourth is shorter.
PROMPTS = (
    [3, 1, 4, 1, 5, 9],
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3],
    [3, 1, 4, 7, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7],
    [3, 1],
)
WINDOWED = TransformerPPConfig(
    vocab_size=61, max_seq_len=40, d_model=36, n_layer=3, n_head=6, n_kv_head=2, d_ff=52, sliding_window=5
)
Logits = list[NDArray[np.float32]]


def answer(cache: PrefixCache, prompt: Sequence[int], count: int = 7) -> tuple[list[int], Logits]:
    """Return the sampled tokens after a prompt, and the logits of each."""
    rows: Logits = []
    draw = sampler(temperature=0.9, top_k=20, top_p=0.95, seed=5)

    def sample(row: NDArray[np.float32], position: int) -> int:
        rows.append(row.copy())
        return draw(row, position)

    return list(cache.tokens(prompt, sample, count)), rows


def require_same(model: Model, prompts: Sequence[Sequence[int]] = PROMPTS) -> list[int]:
    """Compare answers with a kept cache and without one, bit for bit; return how many ids each prompt reused."""
    cache, reused = PrefixCache(model), []
    for prompt in prompts:
        (tokens, rows), (alone, fresh) = answer(cache, prompt), answer(PrefixCache(model), prompt)
        assert (
            tokens
            == alone
            == list(model.generate(prompt, max_tokens=7, temperature=0.9, top_k=20, top_p=0.95, seed=5))
        )
        assert np.array_equal(np.array(rows).view(np.int32), np.array(fresh).view(np.int32))
        reused.append(cache.reused)
    return reused


@pytest.mark.parametrize("name", CASES)
def test_each_family_has_the_bits_of_a_generation_without_the_cache(name: str) -> None:
    model = make(name)[0]
    assert require_same(model) == [0, 6, 3, 1]


@pytest.mark.parametrize("model", [
    Model(WINDOWED, seed=3),
    Model(WINDOWED, seed=3, precision="bf16"),
    Model(WINDOWED, seed=3, lora=LoraConfig(rank=2)),
], ids=["window", "bf16", "lora"])  # fmt: skip
def test_windows_bf16_and_adapters_have_these_bits_too(model: Model) -> None:
    if model.lora is not None:
        rng = np.random.default_rng(1)
        for name in model.parameters:
            if "lora" in name:
                model.set_parameter(
                    name, rng.standard_normal(model.parameters[name].shape).astype(np.float32)
                )
    assert require_same(model) == [0, 6, 3, 1]
    assert require_same(model, [[*range(1, 20)], [*range(1, 32)]]) == [0, 19]


def test_a_family_that_decodes_by_full_passes_reuses_nothing() -> None:
    sizes = {"vocab_size": 61, "max_seq_len": 24, "d_model": 32, "n_layer": 2, "n_head": 2}
    assert require_same(Model(named_family(STATE_SPACE).config(**sizes), seed=2)) == [0, 0, 0, 0]


def test_the_answer_of_the_previous_prompt_is_reused_too() -> None:
    cache = PrefixCache(make("llama_gqa")[0])
    tokens, _ = answer(cache, PROMPTS[0])
    answer(cache, [*PROMPTS[0], *tokens, 1, 2])
    assert cache.reused == len(PROMPTS[0]) + len(tokens) - 1  # the last token was never fed


def test_an_answer_that_is_dropped_early_or_overlaps_another_one_leaves_the_cache_whole() -> None:
    model = make("llama_gqa")[0]
    cache = PrefixCache(model)
    draw = sampler(temperature=0.0, top_k=0, top_p=1.0, seed=0)
    answer(cache, PROMPTS[0])
    first = cache.tokens(PROMPTS[1], draw, 7)
    begun = [next(first), next(first)]
    assert cache.reused == len(PROMPTS[0])
    answer(cache, PROMPTS[2])
    assert begun + list(first) == list(model.generate(PROMPTS[1], max_tokens=7))
    second = answer(cache, PROMPTS[1])
    dropped = cache.tokens(PROMPTS[2], draw, 7)
    next(dropped)
    dropped.close()
    assert answer(cache, PROMPTS[1])[0] == second[0] and cache.reused > 0
    assert require_same(model) == [0, 6, 3, 1]


def test_a_stop_during_a_long_prompt_keeps_the_ids_that_were_fed() -> None:
    model = Model(dataclasses.replace(WINDOWED, max_seq_len=600))
    cache, prompt, checks = PrefixCache(model), [*range(60)] * 9, iter((False, True))
    draw = sampler(temperature=0.0, top_k=0, top_p=1.0, seed=0)
    assert list(cache.tokens(prompt, draw, 3, lambda: next(checks))) == []
    assert list(cache.tokens(prompt, draw, 3)) == list(model.generate(prompt, max_tokens=3))
    assert cache.reused == 256


def test_new_weights_empty_the_cache() -> None:
    model = make("llama_gqa")[0]
    cache = PrefixCache(model)
    answer(cache, PROMPTS[0])
    name = next(iter(model.parameters))
    model.set_parameter(name, model.parameters[name] * np.float32(1.5))
    changed = answer(cache, PROMPTS[1])
    assert cache.reused == 0 and changed[0] == answer(PrefixCache(model), PROMPTS[1])[0]
    with model.patch({"logits": lambda logits: -logits}):
        assert answer(cache, PROMPTS[1])[0] == list(
            model.generate(PROMPTS[1], max_tokens=7, temperature=0.9, top_k=20, top_p=0.95, seed=5)
        )
