"""Model.patch against PyTorch hooks that replace an output: which values see a patch, and that none remains."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, TrainConfig
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from reference.bounds import LOGITS, LOSS
from reference.torch_hooks import hooked
from small_models import CASES, make, make_batch, worst

Array = np.ndarray[Any, Any]
FAMILIES = ("gpt2", "llama_gqa", "mixtral", "mudd", "tokenformer", "mup")
SHIFT = 0.25


def changed(x: Array) -> Array:
    """Return other values of the same shape: experts shifted by one, other values scaled and shifted."""
    if x.dtype.kind == "i":
        made: Array = (x + 1) % 5
        return made
    made = x * 0.5 + SHIFT * (np.arange(x.shape[-1]) % 3 - 1)
    return made.astype(x.dtype)


@pytest.mark.parametrize("name", CASES)
def test_each_patch_equals_a_hook_that_replaces_the_output(name: str) -> None:
    model, cfg, params = make(name)
    batch = make_batch(cfg.vocab_size, 2, 11)
    for key in model.names():
        if key == "logits" or (model.config.n_layer > 2 and key.startswith("blocks.1.")):
            continue
        want = hooked(params, batch, cfg, replaced={key: changed})
        with model.patch({key: changed}):
            logits, loss = model.logits(batch["inputs"]), model.loss(batch)
            found = model.capture(batch, ["logits", key])
        assert worst(logits, want.values["logits"]) <= LOGITS, key
        assert loss == pytest.approx(want.loss, rel=LOSS), key
        assert found.loss == loss and np.array_equal(found["logits"], logits)
        assert worst(found[key], want.values[key]) <= LOGITS, key


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_a_patch_that_changes_nothing_changes_no_bit_and_leaves_nothing(name: str, precision: str) -> None:
    ours, cfg = CASES[name]
    model = Model(ours, seed=3, precision=precision)
    batch = make_batch(cfg.vocab_size, 4, 11)

    def asked() -> tuple[Any, ...]:
        tokens = list(model.generate(batch["inputs"][0, :5], max_tokens=6, temperature=1.0, seed=4))
        return model.logits(batch["inputs"]).tolist(), model.loss(batch), model.evaluate(batch), tokens

    before = asked()
    with model.patch({"blocks.[0-9].out": lambda x: x}):
        assert asked() == before
    with model.patch({"blocks.0.out": changed}):
        assert asked() != before
    assert asked() == before


@pytest.mark.parametrize("name", FAMILIES)
def test_generate_and_evaluate_see_a_patch(name: str) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, 3, 11)
    with model.patch({"blocks.0.attn.out": np.zeros_like, "blocks.1.ffn.out": changed}):
        tokens = list(model.generate(batch["inputs"][0], max_tokens=8))
        ids = np.concatenate([batch["inputs"][0], np.array(tokens, np.int32)])
        assert [int(row.argmax()) for row in model.logits(ids)[10:-1]] == tokens
        nats, count, guessed = model.evaluate(batch)
        logits = model.logits(batch["inputs"])
        patched = model.loss(batch)
    hits = (logits.argmax(-1) == batch["targets"]) & (batch["targets"] >= 0)
    assert count == (batch["targets"] >= 0).sum() and guessed == hits.sum()
    if name != "mixtral":  # its loss includes the routers'
        assert nats / count == pytest.approx(patched, rel=1e-6)
    assert tokens != list(model.generate(batch["inputs"][0], max_tokens=8))


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_logits_may_be_replaced(name: str) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, 4, 11)
    model.normalize = "all_slots"
    plain = (model.loss(batch), model.evaluate(batch))
    with model.patch({"logits": lambda x: x}):
        assert model.loss(batch) == pytest.approx(plain[0], rel=LOSS)
        nats, count, guessed = model.evaluate(batch)
        assert nats == pytest.approx(plain[1][0], rel=LOSS) and (count, guessed) == plain[1][1:]
    with model.patch({"logits": lambda x: np.where(np.arange(cfg.vocab_size) == 7, x + 100, x)}):
        assert list(model.generate(batch["inputs"][0], max_tokens=3)) == [7, 7, 7]
        assert model.loss(batch) > 10 * plain[0]


def test_experts_drop_nothing_while_tokens_are_generated() -> None:
    ours, cfg = CASES["mixtral"]
    model = Model(dataclasses.replace(ours, capacity_factor=0.5), seed=3)
    prompt = make_batch(cfg.vocab_size, 1, 11)["inputs"][0]
    with pytest.warns(UserWarning, match="drop"):
        tokens = list(model.generate(prompt, max_tokens=8))
    with model.patch({"blocks.0.out": lambda x: x}):
        assert list(model.generate(prompt, max_tokens=8)) == tokens


def test_training_does_not_see_a_patch() -> None:
    config = Config(model=CASES["gpt2"][0], train=TrainConfig(steps=2, batch_size=4, seq_len=11))
    batch = make_batch(61, 4, 11)
    finals = []
    for functions in ({}, {"*.out": changed}):
        with Trainer(config, model=Model(config.model)) as trainer:
            with trainer.model.patch(functions):
                records = [trainer.step(batch).loss for _ in range(2)]
                gradients = trainer.model.loss_and_gradients(batch)
            weights = {key: np.array(value) for key, value in trainer.model.parameters.items()}
        finals.append((records, gradients[0], {**gradients[1], **weights}))
    assert finals[0][:2] == finals[1][:2]
    assert all(np.array_equal(finals[0][2][key], value) for key, value in finals[1][2].items())


def test_a_patch_is_removed_after_an_error_and_the_innermost_wins() -> None:
    model, cfg, _ = make("gpt2")
    ids = make_batch(cfg.vocab_size, 1, 5)["inputs"]
    before = model.logits(ids)
    with pytest.raises(ZeroDivisionError), model.patch({"embed.out": changed}):
        raise ZeroDivisionError
    assert np.array_equal(model.logits(ids), before)
    with model.patch({"embed.out": changed}):
        outer = model.logits(ids)
        with model.patch({"embed.out": lambda x: x}):
            assert np.array_equal(model.logits(ids), before)
        assert np.array_equal(model.logits(ids), outer)
    assert not np.array_equal(outer, before)


def test_tokens_are_those_of_the_patches_in_force_at_the_call() -> None:
    model, cfg, _ = make("gpt2")
    ids = make_batch(cfg.vocab_size, 1, 5)["inputs"][0]
    seven: Callable[[Array], Array] = lambda x: np.where(np.arange(cfg.vocab_size) == 7, 100, x)  # noqa: E731
    with model.patch({"logits": seven}):
        tokens = model.generate(ids, max_tokens=3)
    assert list(tokens) == [7, 7, 7]


def test_mistakes_say_what_to_type() -> None:
    model, cfg, _ = make("mixtral")
    ids = make_batch(cfg.vocab_size, 1, 5)["inputs"]
    with pytest.raises(
        UserError, match=r"\[patch\] name: .* 'blocks.0.attn.outs' matches none; similar names: "
    ):
        model.patch({"blocks.0.attn.outs": changed})
    with pytest.raises(
        TypeError, match=r"\[patch\] functions: expected a dict of names to functions, got list"
    ):
        model.patch(["embed.out"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"\[patch\] embed.out: expected a function of an array, got int"):
        model.patch({"embed.out": 0})  # type: ignore[dict-item]
    with (
        model.patch({"embed.out": lambda x: x[:, 1:]}),
        pytest.raises(
            ValueError, match=r"embed.out: expected an array of shape \(1, 5, 36\), got \(1, 4, 36\)"
        ),
    ):
        model.logits(ids)
    with (
        model.patch({"*.choices": lambda x: x + 0.5}),
        pytest.raises(TypeError, match=r"expected int32, got float64"),
    ):
        model.logits(ids)
    with (
        model.patch({"*.choices": lambda x: x + 99}),
        pytest.raises(ValueError, match=r"expected numbers from -1 to 4"),
    ):
        model.logits(ids)
    with model.patch({"embed.out": changed}):
        with pytest.raises(ValueError, match=r"\[generate\] window: expected stop while a patch is active"):
            model.generate(ids[0], max_tokens=99, window="ring")
        with pytest.raises(ValueError, match=r"\[capture\] gradients: a patch is active"):
            model.capture(ids, targets=ids, gradients=True)


def test_a_function_cannot_write_into_the_model() -> None:
    model, cfg, _ = make("mudd")
    ids = make_batch(cfg.vocab_size, 1, 5)["inputs"]
    before = {key: np.array(value) for key, value in model.parameters.items()}
    logits = model.logits(ids)

    def scribble(x: Array) -> Array:
        kept = x.copy()
        x[:] = 7
        return kept

    with model.patch({"*": scribble}):
        assert worst(model.logits(ids), logits) <= LOGITS
    assert all(np.array_equal(model.parameters[key], value) for key, value in before.items())


def test_the_object_inside_has_the_calls_of_the_model() -> None:
    model, cfg, _ = make("gpt2")
    ids = make_batch(cfg.vocab_size, 2, 11)["inputs"]
    plain = model.logits(ids)
    assert model.inside.names() == model.names()
    assert not model.inside.is_patched
    with model.inside.patch({"blocks.0.out": np.zeros_like}):
        assert model.inside.is_patched and list(model.inside.patches) == ["blocks.0.out"]
        assert not np.array_equal(model.logits(ids), plain)
        found = model.inside.capture(ids, "blocks.0.out")
        assert not found["blocks.0.out"].any()
    np.testing.assert_array_equal(model.capture(ids, "logits")["logits"], model.logits(ids))
    np.testing.assert_array_equal(model.logits(ids), plain)


def test_a_look_inside_keeps_no_model_alive() -> None:
    model, cfg, _ = make("gpt2")
    with model.inside.patch({"logits": np.zeros_like}):
        model.logits(make_batch(cfg.vocab_size, 1, 5)["inputs"])
    last = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert last() is None
    finally:
        gc.enable()
