"""optim.second_moment_dtype=bf16: the formula in float64, equal bits everywhere, memory, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.cli import main
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.engine.engine import Engine
from own_cases import ADAMW
from rank_runs import batch_of, config_in_shards, train
from tiny_run import CONFIG, TinyRun

MODEL = mc.TransformerPPConfig(vocab_size=61, max_seq_len=16, d_model=32, n_layer=2, n_head=2, d_ff=48)
LR, BETA1, BETA2 = 3e-3, 0.9, 0.95


def config_of(**optim: Any) -> Config:
    fields = {"lr": LR, "clip": 0.0, "second_moment_dtype": "bf16", **optim}
    return config_in_shards(MODEL, optim=OptimConfig(**fields))


def wide(words: Any) -> Any:
    """Return the float64 values of bf16 that are stored as uint16."""
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_an_update_is_the_formula_in_float64() -> None:
    config = config_of(weight_decay=0.0)
    engine = Engine(config, mc.Model(MODEL, seed=1))
    errors = []
    for t in range(1, 25):
        batch = batch_of(config, t)
        _, gradients = engine.model.loss_and_gradients(batch, shards=8)
        before = {key: np.array(value) for key, value in engine.state_tensors().items()}
        engine.train_step(t - 1, LR, batch)
        after = engine.state_tensors()
        for name, gradient in gradients.items():
            g = gradient.astype(np.float64)
            m = BETA1 * before[f"first_moment/{name}"].astype(np.float64) + (1 - BETA1) * g
            v = BETA2 * wide(before[f"second_moment/{name}"]) + (1 - BETA2) * g * g
            root = np.sqrt(v / (1 - BETA2**t)) + config.optim.eps
            w = before[name] - LR / (1 - BETA1**t) * m / root
            # One update in float32, with roundings of the gradient's scale, the moments and the quotient.
            np.testing.assert_allclose(after[name], w, rtol=1e-5, atol=1e-7)
            exact = v.astype(np.float32)
            words = (exact.view(np.uint32) + np.uint32(40503 * t % 65536)) >> 16
            found = after[f"second_moment/{name}"].astype(np.int64)
            # A float32 rounding of v moves few values to the next bf16.
            assert np.abs(found - words).max() <= 1 and np.mean(found != words) < 1e-3
            counted = exact > 1e-20
            errors.append((wide(after[f"second_moment/{name}"])[counted] / v[counted] - 1).mean())
    # Each error is up to an ulp of bf16 (2^-7); the errors of successive updates cancel.
    assert abs(float(np.mean(errors))) < 2**-7 / 20


@pytest.mark.parametrize("moment", ["fp32", "bf16"])
def test_worlds_and_cut_weights_have_the_bits_of_one(moment: str) -> None:
    config = config_of(moment_dtype=moment, groups="lion: role=gain")
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world
    assert train(dataclasses.replace(config, mesh=MeshConfig(zero=3)), 2) == want
    in_runs = dataclasses.replace(config, train=dataclasses.replace(config.train, micro_batch_size=2))
    assert train(in_runs, 1) == want


def test_state_and_memory_are_those_of_16_bits() -> None:
    config, full = config_of(moment_dtype="bf16"), config_of(second_moment_dtype="fp32")
    engine, other, plain = (Engine(one, mc.Model(MODEL, seed=1)) for one in (config, config, full))
    for step in range(2):
        for one in (engine, plain):
            one.train_step(step, LR, batch_of(config, step))
    state = {key: np.array(value) for key, value in engine.state_tensors().items()}
    assert {state[f"{name}_moment/head"].dtype for name in ("first", "second")} == {np.dtype(np.uint16)}
    assert engine.memory_report()["moments"] * 2 == plain.memory_report()["moments"]
    other.load_state_tensors(state)
    for one in (engine, other):
        one.train_step(2, LR, batch_of(config, 2))
    assert all(
        np.array_equal(value, other.state_tensors()[key]) for key, value in engine.state_tensors().items()
    )
    moved = [np.abs(engine.model.parameters[n] - v).max() for n, v in plain.model.parameters.items()]
    assert 0 < max(moved) < LR * 3
    tensors = engine.state_tensors(writable=True)
    tensors["second_moment/head"][-1, -1] = 0x7F80
    assert engine.train_step(3, LR, batch_of(config, 3)).spoilt


def test_a_resumed_run_has_the_bits_of_one(tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.steps=6", "train.save_every=2", "train.eval_every=0", "optim.second_moment_dtype=bf16")
    whole = TinyRun(tmp_path / "whole", tiny_text, words).finished()
    stopped = TinyRun(tmp_path / "run", tiny_text, (*words, "train.stop_at=3"))
    stopped.stopped()
    again = TinyRun(tmp_path / "run", tiny_text, words)
    again.finished()
    assert again.same_as(whole)
    other = TinyRun(tmp_path / "run", tiny_text, words[:3])
    assert other.finish() == 2 and "optim.second_moment_dtype" in other.output, other.tail


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optim.name=lion"], "expected fp32 for optim.name=lion, which has no second moment"),
        ([f"optim.groups={ADAMW}: head"], "of your own, whose second array is fp32"),
        (["optim.second_moment_dtype=fp16"], "expected one of fp32, bf16, got 'fp16'"),
    ],
)
def test_what_has_no_such_moment_is_named(
    words: list[str], said: str, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    assert main([f"--config={CONFIG}", "--plan", "optim.second_moment_dtype=bf16", *data, *words]) == 2
    assert said in capsys.readouterr().err
    assert (
        main([f"--config={CONFIG}", "--plan", "optim.second_moment_dtype=bf16", "optim.name=muon", *data])
        == 0
    )
