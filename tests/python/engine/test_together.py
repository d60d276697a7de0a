"""Generation of several sequences at a time: tokens and logits have the bits of a generation alone."""

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
from mudd_core.engine.together import Asked, Together
from own_cases import STATE_SPACE
from small_models import CASES, make

# Prompts of several lengths; some share a prefix or are equal.
PROMPTS = (
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8],
    [3, 1],
    [3, 1, 4, 1, 5, 9],
    [3, 1, 4, 1, 5, 9],
    [2, 7, 1, 8, 2, 8],
    [3, 1, 4, 1, 5, 9, 2],
    [7],
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 9],
    [1, 6, 1, 8, 0, 3],
    [3, 1, 4],
)
LLAMA = TransformerPPConfig(
    vocab_size=61, max_seq_len=40, d_model=36, n_layer=3, n_head=6, n_kv_head=2, d_ff=52, sliding_window=5
)


class Answer:
    """The tokens of an answer with the bits of their logits. last: a token that ends it."""

    def __init__(self, number: int, prompt: Sequence[int], max_tokens: int, last: int = -1) -> None:
        self.tokens, self.bits = list[int](), list[NDArray[np.int32]]()
        self._draw, self._last = sampler(temperature=0.9, top_k=20, top_p=0.95, seed=number), last
        self.asked = Asked([*prompt], self.sample, max_tokens, self.take)

    def sample(self, row: NDArray[np.float32], position: int) -> int:
        self.bits.append(row.copy().view(np.int32))
        return self._draw(row, position)

    def take(self, token: int) -> bool:
        self.tokens.append(token)
        return token != self._last


def answers(together: Together, numbers: Sequence[int], last: int = -1) -> list[Answer]:
    """Return the answers to prompts; each has its own number of tokens."""
    found = [Answer(number, PROMPTS[number], 3 + 2 * number, last) for number in numbers]
    ended = list[int]()
    together.run([one.asked for one in found], ended.append)
    assert sorted(ended) == list(range(len(numbers)))
    return found


def require_same(model: Model, last: int = -1) -> None:
    """Compare answers of one run with answers of a run for each prompt, bit for bit."""
    assert Together.can_run(model)
    together = Together(model, 4)
    for _ in range(2):  # the second time with the caches of the first one
        for number, one in enumerate(answers(together, range(len(PROMPTS)), last)):
            [alone] = answers(Together(model, 1), [number], last)
            wanted = [*model.generate(
                PROMPTS[number], max_tokens=3 + 2 * number, temperature=0.9, top_k=20, top_p=0.95, seed=number
            )]  # fmt: skip
            end = wanted.index(last) + 1 if last in wanted else len(wanted)
            assert one.tokens == alone.tokens == wanted[:end]
            assert np.array_equal(np.array(one.bits), np.array(alone.bits))


@pytest.mark.parametrize("name", CASES)
def test_each_family_has_the_bits_of_a_generation_alone(name: str) -> None:
    require_same(make(name)[0])


@pytest.mark.parametrize("model", [
    Model(LLAMA, seed=3),
    Model(LLAMA, seed=3, precision="bf16"),
    Model(LLAMA, seed=3, lora=LoraConfig(rank=2)),
], ids=["window", "bf16", "lora"])  # fmt: skip
def test_windows_bf16_and_adapters_have_these_bits_too(model: Model) -> None:
    require_same(model)


def test_answers_that_end_early_leave_the_others_whole() -> None:
    model = Model(LLAMA, seed=3)
    likely = max(range(61), key=[*model.generate([3], max_tokens=39, seed=1, temperature=0.9)].count)
    lengths = {len(one.tokens) for one in answers(Together(model, 4), range(len(PROMPTS)), likely)}
    assert len(lengths) > 3
    require_same(model, likely)


def test_sequences_share_their_steps() -> None:
    model = Model(LLAMA, seed=3)
    together = Together(model, 8)
    found = [Answer(number, [number] * (2 + number % 3), 20) for number in range(8)]
    together.run([one.asked for one in found], lambda number: None)
    # Of 19 steps each, the shortest takes two alone and those with one id more take one less.
    assert together.steps == 19 + 2 and all(len(one.tokens) == 20 for one in found)
    one_by_one = Together(model, 1)
    one_by_one.run([Answer(number, [number, 1], 20).asked for number in range(8)], lambda number: None)
    assert one_by_one.steps == 8 * 19


def test_a_longer_run_and_new_weights_get_new_caches() -> None:
    model = Model(dataclasses.replace(LLAMA, max_seq_len=200), seed=3)
    together = Together(model, 4)
    for length in (5, 150, 5):
        one = Answer(0, [*range(50)] * 3, 7) if length == 150 else Answer(0, PROMPTS[0], 7)
        together.run([one.asked], lambda number: None)
        assert one.tokens == [*model.generate(
            one.asked.prompt, max_tokens=7, temperature=0.9, top_k=20, top_p=0.95, seed=0
        )]  # fmt: skip
        name = next(iter(model.parameters))
        model.set_parameter(name, model.parameters[name] * np.float32(1.5))
    together.run([], lambda number: pytest.fail("no prompt has ended"))


def test_models_whose_sequences_depend_on_each_other_are_named() -> None:
    sizes = {"vocab_size": 61, "max_seq_len": 24, "d_model": 32, "n_layer": 2, "n_head": 2}
    assert not Together.can_run(Model(named_family(STATE_SPACE).config(**sizes), seed=2))
    mixtral = make("mixtral")[0]
    full = dataclasses.replace(mixtral.config, capacity_factor=1.0)
    assert Together.can_run(mixtral) and not Together.can_run(Model(full))
    model = Model(LLAMA, seed=3)
    with model.patch({"logits": lambda logits: -logits}):
        assert not Together.can_run(model)
