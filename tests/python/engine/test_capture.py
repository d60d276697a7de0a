"""Model.capture against PyTorch's hooks with the same weights: values, gradients, names and cost."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.engine.model import Model
from mudd_core.models import unfused
from reference.bounds import EPSILON, GRADIENT, LOGITS, LOSS, op_bound
from reference.torch_hooks import hooked
from small_models import CASES, make, make_batch, worst

FAMILIES = ("gpt2", "llama_gqa", "mixtral", "mudd", "tokenformer", "mup")
EXPERTS = ("mixtral", "mixtral_qk_norm", "mudd_experts")


def extra_arrays(samples: int, length: int) -> dict[str, Any]:
    """Return positions, segments and a key mask."""
    rng = np.random.default_rng(5)
    return {
        "positions": rng.integers(0, 40, (samples, length)).astype(np.int32),
        "segments": np.sort(rng.integers(0, 4, (samples, length)), 1).astype(np.int32),
        "key_mask": (rng.random((samples, length)) < 0.8).astype(np.int32),
    }


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", CASES)
def test_every_value_equals_the_output_of_a_forward_hook(name: str, packed: bool) -> None:
    model, cfg, params = make(name)
    batch = make_batch(cfg.vocab_size, 2, 19) | (extra_arrays(2, 19) if packed else {})
    want = hooked(params, batch, cfg)
    found = model.capture(batch)
    assert set(found) == set(want.values) == set(model.names())
    assert found.loss == pytest.approx(want.loss, rel=LOSS)
    for key, value in want.values.items():
        assert found[key].shape == value.shape, key
        assert worst(found[key], value) <= LOGITS, key


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", CASES)
def test_every_gradient_equals_that_of_retain_grad(name: str, packed: bool) -> None:
    model, cfg, params = make(name)
    batch = make_batch(cfg.vocab_size, 2, 19) | (extra_arrays(2, 19) if packed else {})
    want = hooked(params, batch, cfg)
    found = model.capture(batch, gradients=True)
    whole = {key for key in model.names() if found[key].dtype == np.int32}
    assert set(found.gradients) == (set(model.names()) - whole) | set(model.parameters)
    assert found.loss == pytest.approx(want.loss, rel=LOSS)
    largest = max(np.abs(want.gradients[key]).max() for key in params)
    for key, gradient in want.gradients.items():
        if name.startswith("tokenformer") and key.endswith(("attn.weights", "attn.heads")):
            # A query that sees no key has slot scores of zero. The normalization divides by their norm, so its gradient
            # is undefined there (docs/maths/tokenformer.md).
            alone = want.values[key.replace("heads", "weights")].sum(-1) == 0
            gradient[alone if key.endswith("weights") else alone[:, 0]] = 0
            found.gradients[key][alone if key.endswith("weights") else alone[:, 0]] = 0
        # Where the exact gradient is zero (a key bias moves all scores of a row alike), only rounding remains.
        scale = max(np.abs(gradient).max(), 5e-3 * largest)
        assert np.abs(found.gradients[key] - gradient).max() <= GRADIENT * scale, key


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_a_capture_has_the_bits_of_the_planned_graph(name: str, precision: str) -> None:
    ours, cfg = CASES[name]
    model = Model(ours, seed=3, precision=precision)
    batch = make_batch(cfg.vocab_size, 2, 19)
    logits, loss = model.logits(batch["inputs"]), model.loss(batch)
    loss_again, gradients = model.loss_and_gradients(batch)
    found = model.capture(batch)
    assert np.array_equal(found["logits"], logits)
    assert found.loss == loss
    stored = model.capture(batch, ["logits", "blocks.[0-9].out"], gradients=True)
    assert list(stored) == [*(f"blocks.{i}.out" for i in range(ours.n_layer)), "logits"]
    assert all(np.array_equal(stored[key], found[key]) for key in stored)
    # A capture leaves the model unchanged.
    assert np.array_equal(model.logits(batch["inputs"]), logits)
    assert model.loss(batch) == loss
    again = model.loss_and_gradients(batch)
    assert again[0] == loss_again
    assert all(np.array_equal(again[1][key], gradient) for key, gradient in gradients.items())


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parameters_have_the_bits_of_a_training_graph(name: str) -> None:
    model, cfg, _ = make(name)
    batch = make_batch(cfg.vocab_size, 2, 19)
    found = model.capture(batch, ["embed.out", *model.parameters], gradients=True).gradients
    gradients = model.loss_and_gradients(batch)[1]
    assert set(found) == {"embed.out", *gradients}
    assert all(np.array_equal(found[key], gradient) for key, gradient in gradients.items())
    rounded = Model(CASES[name][0], seed=3, precision="bf16")
    found = rounded.capture(batch, list(rounded.parameters), gradients=True).gradients
    gradients = rounded.loss_and_gradients(batch)[1]
    assert all(np.array_equal(found[key], gradient) for key, gradient in gradients.items())


@pytest.mark.parametrize("name", CASES)
def test_weights_times_values_are_what_the_kernel_computed(name: str) -> None:
    model, cfg, _ = make(name)
    found = model.capture(make_batch(cfg.vocab_size, 3, 33) | extra_arrays(3, 33))
    heads, groups = model.config.n_head, found["blocks.0.attn.weights"].shape[1]
    assert groups == heads
    for layer in range(model.config.n_layer):
        part = f"blocks.{layer}.attn."
        weights, v = found[part + "weights"], found[part + "v"].astype(np.float64)
        width = found[part + "heads"].shape[-1] // heads
        v = v.reshape(3, 33, -1, width).repeat(heads * width // v.shape[-1], axis=2)
        want = np.einsum("bhts,bshd->bthd", weights.astype(np.float64), v).reshape(3, 33, -1)
        assert worst(found[part + "heads"], want) <= op_bound("attention"), part
        assert np.all(np.triu(weights, 1) == 0)


def test_names_choose_what_is_kept_and_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cfg, _ = make("mudd")
    ids = make_batch(cfg.vocab_size, 2, 9)["inputs"]
    found = model.capture(ids, ["blocks.*.attn.*", "!*.weights"])
    assert {key.split(".")[2] for key in found} == {"attn"} and len(found) == 11 * cfg.layers
    assert list(model.capture(ids, "embed.out")) == ["embed.out"]

    def refuse(*_: object) -> None:
        raise AssertionError("an attention matrix was computed")

    monkeypatch.setattr(unfused, "weight_columns", refuse)
    model.capture(ids, ["*", "!*.attn.weights"])
    with pytest.raises(AssertionError, match="attention matrix"):
        model.capture(ids, "blocks.1.attn.weights")


def test_shapes_of_names_are_those_of_the_arrays() -> None:
    for name in CASES:
        model, cfg, _ = make(name)
        found = model.capture(make_batch(cfg.vocab_size, 2, 9)["inputs"])
        for key, shape in model.names().items():
            words = shape.removeprefix("int32 ").strip("[]").split(", ")
            assert found[key].shape == tuple({"B": 2, "T": 9}.get(word) or int(word) for word in words), key
            assert found[key].dtype == (np.int32 if shape.startswith("int32") else np.float32)


def test_one_scheme_of_names_for_all_families() -> None:
    common = {"attn.q", "attn.k", "attn.v", "attn.queries", "attn.keys", "attn.weights", "attn.heads"}
    common |= {"attn.out", "mid", "ffn.in", "ffn.out", "out"}
    whole = {"embed.out", "final_norm.out", "logits"}
    for name in CASES:
        model, _, _ = make(name)
        assert whole | {f"blocks.0.{part}" for part in common} <= set(model.names())
        assert not set(model.names()) & set(model.parameters)
        routers = {key for key in model.names() if ".router." in key}
        assert bool(routers) == (name in EXPERTS)


@pytest.mark.parametrize("name", FAMILIES)
def test_frozen_and_narrow_models(name: str) -> None:
    ours, cfg = CASES[name]
    batch = make_batch(cfg.vocab_size, 2, 9)
    plain = Model(ours, seed=3)
    stored = {
        key: "bfloat16"
        for key in plain.parameters
        if plain.store.describe(key)["may_be_narrow"] and key.startswith("blocks.0")
    }
    narrow = Model(ours, seed=3, stored=stored)
    for key in set(plain.parameters) - set(stored):
        narrow.set_parameter(key, plain.parameters[key])
    found = narrow.capture(batch, gradients=True)
    assert worst(found["logits"], narrow.logits(batch["inputs"])) <= LOGITS
    assert set(narrow.parameters) <= set(found.gradients)  # also of frozen parameters
    plain.train_only([next(iter(plain.parameters))])
    assert set(plain.capture(batch, gradients=True).gradients) == set(found.gradients)


def test_a_capture_drops_nothing_at_random() -> None:
    ours, cfg = CASES["gpt2"]
    dropping = dataclasses.replace(ours, embd_dropout=0.5, attn_dropout=0.5, resid_dropout=0.5)
    batch = make_batch(cfg.vocab_size, 2, 9)
    found = Model(dropping, seed=3).capture(batch, gradients=True)
    want = Model(ours, seed=3).capture(batch, gradients=True)
    assert found.loss == want.loss
    assert all(np.array_equal(found.gradients[key], want.gradients[key]) for key in want.gradients)


def test_mistakes_say_what_to_type() -> None:
    model, cfg, _ = make("mixtral")
    batch = make_batch(cfg.vocab_size, 2, 9)
    with pytest.raises(
        UserError, match=r"'blocks.0.attn.weight' matches none; similar names: blocks.\*.attn.weights"
    ):
        model.capture(batch["inputs"], ["blocks.0.attn.weight"])
    with pytest.raises(UserError, match=r"\[capture\] names: .*model.names\(\) lists all"):
        model.capture(batch["inputs"], "blocks.*.mlp.*")
    with pytest.raises(ValueError, match=r"\[capture\] targets: gradients need them"):
        model.capture(batch["inputs"], gradients=True)
    with pytest.raises(ValueError, match=r"targets: expected shape \(2, 9\), got \(2, 8\)"):
        model.capture(batch["inputs"], targets=batch["targets"][:, 1:])


def test_ids_of_one_sequence_count_as_a_batch_of_one() -> None:
    model, cfg, _ = make("gpt2")
    ids = make_batch(cfg.vocab_size, 1, 9)["inputs"]
    found = model.capture(ids[0], "embed.out")
    assert found["embed.out"].shape == (1, 9, 36)
    assert repr(found) == "embed.out float32[1, 9, 36]"


def test_logits_of_the_reference_of_attention_are_near() -> None:
    model, cfg, _ = make("llama_gqa")
    batch = make_batch(cfg.vocab_size, 2, 19)
    found = model.capture(batch, gradients=True)  # uses the weights, so sums are rounded differently
    assert 0 < worst(found["logits"], model.logits(batch["inputs"])) <= 40 * EPSILON
