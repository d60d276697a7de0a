"""Scores of continuations: bits equal an evaluation of each sequence alone, however sequences are batched or shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.engine.scoring.scorer import Scorer
from mudd_core.engine.scoring.shared import groups_of, longest_of

V, T = 61, 96
SIZE: dict[str, Any] = {"vocab_size": V, "max_seq_len": T, "d_model": 32, "n_layer": 2, "n_head": 4}
GEMMA: dict[str, Any] = {**SIZE, "n_kv_head": 2, "sliding_window": 5, "sliding_layers": "0"}
CONFIGS = {
    "transformer_pp": mc.TransformerPPConfig(**SIZE),
    "windows": mc.TransformerPPConfig(**GEMMA),
    "gpt2": mc.GPT2Config(**SIZE),
    "muddformer": mc.MUDDFormerConfig(**SIZE),
    "tokenformer": mc.TokenFormerConfig(**SIZE),
    "mup": mc.MupConfig(
        vocab_size=V, max_seq_len=T, d_model=32, n_layer=2, d_base=32, d_head=8, qk_scale=0.125
    ),
    "mixtral": mc.MixtralConfig(**SIZE),
}
Request = tuple[list[int], list[int]]


def requests(seed: int) -> list[Request]:
    """Return choices of contexts with a common start, one-token choices, windows, and a context that is too long."""
    rng = np.random.default_rng(seed)

    def ids(count: int) -> list[int]:
        return [int(one) for one in rng.integers(0, V, count)]

    few, found = ids(40), []
    for _ in range(4):
        context = few + ids(int(rng.integers(1, 30)))
        found += [(context, ids(int(rng.integers(1, 6)))) for _ in range(4)]
    letters = ids(50)
    found += [(letters, [one]) for one in range(5)]
    found += [(ids(1), ids(int(rng.integers(1, T)))) for _ in range(5)]
    long = ids(T + 9)
    found += [(long, ids(3)), (long, ids(3)), (found[0][0], found[0][1])]
    return [found[at] for at in rng.permutation(len(found))]


def expected(model: mc.Model, request: Request) -> tuple[float, bool]:
    """Return the log-probability and the greedy flag from Model.evaluate on this sequence alone."""
    context, targets = request
    ids = np.array([(context + targets)[-(T + 1) :]], np.int32)
    wanted = ids[:, 1:].copy()
    wanted[0, : -len(targets)] = -1
    nats, count, guessed = model.evaluate({"inputs": ids[:, :-1].copy(), "targets": wanted})
    return -nats, guessed == count


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_have_the_bits_of_each_sequence_alone(name: str) -> None:
    model, asked = mc.Model(CONFIGS[name], seed=3), requests(1)
    one = asked.index(next(request for request in asked if len(request[1]) == 1))
    asked[one] = (asked[one][0], [int(model.logits(asked[one][0])[-1].argmax())])
    wanted = [expected(model, request) for request in asked]
    assert wanted[one][1] and not all(greedy for _, greedy in wanted)
    shared, plain = Scorer(model), Scorer(model, 3, shares=False)
    for scorer in (shared, plain):
        assert [(score.log_prob, score.greedy) for score in scorer.scores(asked)] == wanted
    assert shared.computed < 0.7 * plain.computed


def test_bf16_scores_have_the_bits_of_each_sequence_alone() -> None:
    model, asked = mc.Model(CONFIGS["windows"], seed=3, precision="bf16"), requests(2)
    wanted = [expected(model, request) for request in asked]
    assert [(score.log_prob, score.greedy) for score in Scorer(model).scores(asked)] == wanted


def test_experts_with_a_capacity_see_only_their_own_sequence() -> None:
    config = mc.MixtralConfig(**SIZE, capacity_factor=1.0)
    model, asked = mc.Model(config, seed=3), requests(3)
    wanted = [expected(model, request) for request in asked]
    assert [(score.log_prob, score.greedy) for score in Scorer(model).scores(asked)] == wanted


def test_a_beginning_of_a_longer_sequence_is_not_a_sequence() -> None:
    sequences = [(1, 2), (3,), (1, 2, 4), (1,), (1, 2, 4), (1, 3)]
    found, number = longest_of(sequences)
    assert found == [(1, 2, 4), (1, 3), (3,)] and number == [0, 2, 0, 0, 0, 1]


def test_short_beginnings_are_not_shared_and_long_ones_are() -> None:
    short = [(1, 2, at) for at in range(4)]
    long = [(*range(60), at, at) for at in range(4)]
    assert [group.end - group.first for group in groups_of(short, 0)] == [1, 1, 1, 1]
    assert [(group.end - group.first, group.shared) for group in groups_of(long, 0)] == [(4, 60)]


def test_requests_that_cannot_be_scored_are_refused() -> None:
    scorer = Scorer(mc.Model(CONFIGS["gpt2"]))
    for request in (([], [1]), ([1], []), ([1], [1] * (T + 1))):
        with pytest.raises(ValueError, match=f"expected a context and 1 to {T} further tokens"):
            scorer.scores([request])
    with pytest.raises(ValueError, match=r"expected ids in \[0, 61\), got 61"):
        scorer.scores([([1, V], [1])])


def test_a_model_with_patches_is_refused() -> None:
    model = mc.Model(CONFIGS["gpt2"])
    with model.patch({"final_norm.out": lambda h: h}), pytest.raises(ValueError, match="without patches"):
        Scorer(model)
