"""Whole models against PyTorch autograd, AdamW steps against torch.optim, decoding against full passes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mudd_core import _core, interop, ops
from mudd_core.config import SampleConfig
from mudd_core.engine.model import Model
from mudd_core.run.report.sample import write_text
from reference import torch_training as tt
from reference.bounds import LOGITS, LOSS
from small_models import CASES, make, make_batch, require_gradients, worst


@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (4, 33)])
@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_gradients_equal_autograd(name: str, shape: tuple[int, int]) -> None:
    model, cfg, params = make(name)
    batch = make_batch(cfg.vocab_size, *shape)
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64)
    assert worst(model.logits(batch["inputs"]), want.logits) <= LOGITS
    loss, gradients = model.loss_and_gradients(batch)
    assert loss == pytest.approx(want.loss, rel=LOSS)
    assert model.loss(batch) == pytest.approx(want.loss, rel=LOSS)
    assert set(gradients) == set(want.grads)
    require_gradients(gradients, want.grads)


@pytest.mark.parametrize("name", CASES)
def test_positions_segments_and_masks(name: str) -> None:
    model, cfg, params = make(name)
    batch = make_batch(cfg.vocab_size, 3, 12)
    rng = np.random.default_rng(5)
    extra = {
        "positions": rng.integers(0, 40, (3, 12)).astype(np.int32),
        "segments": np.sort(rng.integers(0, 4, (3, 12)), 1).astype(np.int32),
        "key_mask": (rng.random((3, 12)) < 0.8).astype(np.int32),
    }
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64, **extra)
    loss, gradients = model.loss_and_gradients({**batch, **extra})
    assert loss == pytest.approx(want.loss, rel=LOSS)
    require_gradients(gradients, want.grads)


@pytest.mark.parametrize("name", CASES)
def test_greedy_decoding_is_the_argmax_of_full_passes(name: str) -> None:
    model, cfg, params = make(name)
    prompt = make_batch(cfg.vocab_size, 1, 11)["inputs"]
    out = list(model.generate(prompt, max_tokens=20))
    assert len(out) == 20
    full = np.concatenate([prompt[0], np.array(out, np.int32)])
    logits = model.logits(full)
    assert [int(row.argmax()) for row in logits[10:-1]] == out
    # Not only the argmax is equal: decoding with a cache has the bits of the full pass.
    generator = model._generator
    assert generator is not None
    assert np.array_equal(generator.feed(full, 0, generator.take_caches()), logits)
    assert out == list(tt.greedy(params, prompt, 20, cfg)[0])


def test_sampling_depends_on_seed_only() -> None:
    model, _, _ = make("llama_gqa")

    def draw(seed: int) -> list[int]:
        return list(model.generate([1, 2, 3], max_tokens=15, temperature=1.0, top_k=20, top_p=0.9, seed=seed))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert list(model.generate([1, 2], max_tokens=10, temperature=1.0, top_k=1)) == list(
        model.generate([1, 2], max_tokens=10)
    )


def test_generators_of_one_model_do_not_disturb_each_other() -> None:
    model, _, _ = make("llama_gqa")
    prompts = ([1, 2, 3], [7, 30, 9, 44])
    alone = [list(model.generate(prompt, max_tokens=12)) for prompt in prompts]
    assert alone[0] != alone[1]
    in_turns = list(zip(*(model.generate(prompt, max_tokens=12) for prompt in prompts), strict=True))
    assert [list(tokens) for tokens in zip(*in_turns, strict=True)] == alone
    begun = model.generate(prompts[0], max_tokens=12)
    first = [next(begun) for _ in range(5)]
    assert list(model.generate(prompts[1], max_tokens=12)) == alone[1]
    assert first + list(begun) == alone[0]


def test_generation_stops_at_the_window() -> None:
    model, _, _ = make("gpt2")
    assert len(list(model.generate(np.ones(38, np.int32), max_tokens=10))) == 3


@pytest.mark.parametrize(
    "name", ["llama_gqa", "mudd", "tokenformer_neox", "mixtral", "mup", "mup_swiglu_mqa", "mup_elu"]
)
def test_a_ring_of_keys_goes_on_behind_the_longest_sequence(name: str) -> None:
    """With one block a key depends only on its token, so a pass over the last tokens returns the same logits."""
    larger = make(name)[0]
    config = dataclasses.replace(
        larger.config, n_layer=1, **({"ffn_realloc": False} if name == "mudd" else {})
    )
    model = Model(config, seed=3)
    for view in model.parameters:  # the initial weights hardly distinguish tokens
        if model.parameters[view].shape == larger.parameters[view].shape:
            model.set_parameter(view, larger.parameters[view])
    longest, prompt, draw = model.config.max_seq_len, [1, 5, 9], {"temperature": 5.0, "seed": 4}
    written = list(model.generate(prompt, max_tokens=2 * longest, window="ring", **draw))
    assert len(written) == 2 * longest and len(set(written)) > 10
    assert written[: longest - 2] == list(model.generate(prompt, max_tokens=longest - 2, **draw))
    tokens = np.array(prompt + written, np.int32)
    for end in range(longest + 1, 2 * longest + 3):
        logits = model.logits(tokens[None, end - longest : end])[0, -1]
        assert _core.sample(logits, top_k=0, top_p=1.0, position=end, **draw) == tokens[end], end
    assert written == list(model.generate(prompt, max_tokens=2 * longest, window="ring", **draw))


def test_a_ring_needs_rotary_positions_and_room() -> None:
    gpt2, llama = make("gpt2")[0], make("llama_gqa")[0]
    assert len(list(gpt2.generate([1], max_tokens=39, window="ring"))) == 39  # short enough without a ring
    with pytest.raises(
        ValueError, match="window=ring: needs rotary positions; the positions of this gpt2 end at 40"
    ):
        gpt2.generate([1], max_tokens=41, window="ring")
    with pytest.raises(ValueError, match=r"window=ring: expected at most 1600000 tokens in all"):
        llama.generate([1], max_tokens=1_600_000, window="ring")
    with pytest.raises(ValueError, match="window: expected stop or ring, got 'round'"):
        llama.generate([1], window="round")


class Characters:
    """A decoder of ids that are code points."""

    def __call__(self, token: int) -> str:
        return chr(token)

    def end(self) -> str:
        return ""


def test_a_sample_that_the_window_ends_says_so() -> None:
    tokenizer = SimpleNamespace(
        encode=lambda prompt, **_: [ord(c) % 61 for c in prompt],
        eos_id=-1,
        stop_ids=frozenset(),
        ids_below=61,
        stream=lambda after: Characters(),
    )
    model, _, _ = make("gpt2")
    for asked, written in ((10, 4), (4, 4), (3, 3)):
        notes: list[str] = []
        settings = SampleConfig(max_tokens=asked)
        text = write_text(model, tokenizer, "a" * 36, settings, lambda piece: None, notes.append)
        assert len(text) == written and len(notes) == (asked > written)
        assert (
            not notes
            or "longest sequence of the model, 40 tokens: 4 new tokens after a prompt of 36" in notes[0]
        )
    model, _, _ = make("llama_gqa")
    settings = SampleConfig(max_tokens=50, window="ring")
    assert len(write_text(model, tokenizer, "a" * 36, settings, lambda piece: None, pytest.fail)) == 50


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"inputs": [[1, 99]], "targets": [[1, 2]]}, "expected ids in"),
        ({"inputs": [[1, -2]], "targets": [[1, 2]]}, "expected ids in"),
        ({"inputs": [[1, 2]], "targets": [[1, 2, 3]]}, "expected shape"),
        ({"inputs": [[1, 2]], "targets": [[1, 2]], "segments": [[1.7, 1.7]]}, "segments: expected integers"),
        (
            {"inputs": [[1, 2]], "targets": [[1, 2]], "positions": [[0, 2**32 + 5]]},
            "positions: expected 32-bit",
        ),
        ({"inputs": [[1, 2]]}, "expected inputs, targets"),
        ({"inputs": [[1, 2]], "targets": [[1, 2]], "mask": [[1, 2]]}, "mask"),
        ({"inputs": [[]], "targets": [[]]}, "expected integers|at least one"),
    ],
)
def test_bad_batches_are_refused(batch: dict[str, Any], message: str) -> None:
    model, _, _ = make("llama_gqa")
    with pytest.raises((ValueError, TypeError), match=message):
        model.loss_and_gradients(batch)


def test_shapes_are_compared_before_values_are_read() -> None:
    """Check a view of 2^40 elements over one stored element: reading its values would take hours."""
    model, _, _ = make("llama_gqa")
    endless = np.broadcast_to(np.int32(1), (2**40, 2))
    good = {"inputs": np.ones((1, 2), np.int32), "targets": np.ones((1, 2), np.int32)}
    for name in ("targets", "positions", "segments", "key_mask"):
        with pytest.raises(ValueError, match=rf"{name}: expected shape \(1, 2\)"):
            model.loss({**good, name: endless})
    for call in (model.logits, model.generate, lambda ids: model.loss({"inputs": ids, "targets": ids})):
        with pytest.raises(ValueError, match="expected ids that fit into memory"):
            call(endless)
    with pytest.raises(ValueError, match="expected ids that fit into memory"):
        interop.system.as_ids(endless, "tokens")


def test_ops_compare_shapes_before_they_copy() -> None:
    q, endless = np.ones((1, 2, 8), np.float32), np.broadcast_to(np.int32(1), (2**40, 2))
    table = np.ones((5, 8), np.float32)
    for name in ("segments", "key_mask"):
        with pytest.raises(ValueError, match=name):
            ops.attention(q, q, q, n_head=2, **{name: endless})
    with pytest.raises(ValueError, match="targets"):
        ops.cross_entropy(q, table, endless)
    with pytest.raises(ValueError, match="positions"):
        ops.rope(q, endless, n_head=2)


def test_every_negative_target_is_ignored() -> None:
    model, _, _ = make("llama_gqa")
    losses = {model.loss({"inputs": [[1, 2, 3]], "targets": [[4, low, 5]]}) for low in (-1, -100, -(2**32))}
    assert len(losses) == 1


def test_parameters_are_read_only_and_checked() -> None:
    model, _, _ = make("llama_gqa")
    with pytest.raises(ValueError, match="read-only"):
        model.parameters["embed"][0, 0] = 1.0
    with pytest.raises(KeyError, match="no_such"):
        model.set_parameter("no_such", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="shape"):
        model.set_parameter("embed", np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="float32"):
        model.set_parameter("embed", np.zeros(model.parameters["embed"].shape))
    with pytest.raises(ValueError, match=r"model\.d_model: expected a multiple of model\.n_head \(6\)"):
        ours, _ = CASES["llama_gqa"]
        import dataclasses

        Model(dataclasses.replace(ours, d_model=35, n_head=6, d_head=0)).logits([1])


def test_a_vocabulary_larger_than_the_tokenizers_draws_only_its_ids() -> None:
    model, cfg, _ = make("gpt2")
    wild = list(model.generate([1, 2, 3], max_tokens=12, temperature=5.0, seed=3))
    assert max(wild) >= 7  # the limit excludes some tokens
    for temperature in (0.0, 5.0):
        tokens = list(model.generate([1, 2, 3], max_tokens=12, temperature=temperature, seed=3, ids_below=7))
        assert len(tokens) == 12
        assert max(tokens) < 7
    assert cfg.vocab_size > 7
