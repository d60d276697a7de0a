"""Frozen parameters (train.trainable): patterns, gradients, updates against PyTorch, memory, checkpoints, resume."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config, OptimConfig, TrainConfig, config_hash
from mudd_core.config.optim import SPECS
from mudd_core.engine.engine import Engine
from mudd_core.engine.frozen import trained_names
from reference import torch_models as tm
from reference import torch_training as tt
from small_models import CASES, make, make_batches, state
from tiny_run import TinyRun

BATCH, LENGTH, LR = 4, 9, 1e-2
batches = partial(make_batches, samples=BATCH, length=LENGTH)
MICRO = "micro_batch"
ELEMENTWISE = [spec.name for spec in _core.optimizer_specs() if not (spec.whole_matrices or spec.by_rows)]
NAMES = ["embed", "blocks.0.attn.q.w", "blocks.1.attn.q.w", "blocks.0.ffn.up.w", "final_norm.gain", "head"]


def config(case: str, patterns: str = "", **optim: Any) -> Config:
    return Config(
        name="test",
        model=CASES[case][0],
        train=TrainConfig(steps=10, batch_size=BATCH, seq_len=LENGTH, trainable=patterns),
        optim=OptimConfig(**{"lr": LR, "weight_decay": 0.1, "clip": 0.5, "decay": "all", **optim}),
    )


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ("", NAMES),
        ("*", NAMES),
        ("head", ["head"]),
        ("blocks.*.attn.*", NAMES[1:3]),
        ("blocks.[1].*, head", ["blocks.1.attn.q.w", "head"]),
        ("!embed, !head", NAMES[1:5]),
        ("blocks.*,!*.ffn.*", NAMES[1:3]),
    ],
)
def test_patterns_choose_names(patterns: str, chosen: list[str]) -> None:
    assert trained_names(patterns, NAMES) == chosen


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        ("blocks.*.atn.q.w", r"'blocks.\*.atn.q.w' matches none; similar names: blocks.\*.attn.q.w"),
        ("blocks.7.attn.q.w", r"similar names: blocks.\*.attn.q.w"),
        ("head,!heads", r"'heads' matches none; similar names: head"),
        ("zzz", r"'zzz' matches none; there are embed, "),
        ("head,!h*", "expected at least one parameter to train"),
    ],
)
def test_patterns_that_choose_nothing_are_refused(patterns: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        trained_names(patterns, NAMES)


def test_the_default_leaves_the_config_hash_alone() -> None:
    plain = config("llama_gqa")
    assert config_hash(plain) == config_hash(config("llama_gqa", "*"))
    assert config_hash(plain) != config_hash(config("llama_gqa", "head"))


def _groups(names: list[str]) -> list[str]:
    """Return patterns that freeze each kind of parameter, and patterns that train only one kind."""
    kinds = list(
        dict.fromkeys(name.split(".", 2)[-1] if name.startswith("blocks.") else name for name in names)
    )
    every = [f"*{kind}" for kind in kinds]
    return (
        every
        + [f"!{one}" for one in every]
        + ["blocks.1.*" if "blocks.1." in "".join(names) else "blocks.0.*"]
    )


@pytest.mark.parametrize("name", CASES)
def test_gradients_do_not_depend_on_what_is_frozen(name: str) -> None:
    model, cfg, _ = make(name)
    names = model.store.names()
    batch = batches(cfg.vocab_size, 1)[0]
    loss, whole = model.loss_and_gradients(batch, shards=2)
    for patterns in _groups(names):
        chosen = trained_names(patterns, names)
        model.train_only(chosen)
        for run in (model.loss_and_gradients, model.loss_and_gradients_immediate):
            got_loss, got = run(batch, shards=2)
            assert got_loss == loss
            assert list(got) == chosen or set(got) == set(chosen)
            assert all(np.array_equal(got[key], whole[key]) for key in got), patterns
    model.train_only(names)
    assert set(model.loss_and_gradients(batch, shards=2)[1]) == set(names)


def torch_steps(
    params: dict[str, Any], data: list[dict[str, Any]], cfg: Any, trained: list[str]
) -> tuple[dict[str, Any], list[float]]:
    """Train with torch's AdamW in float64, others frozen; return weights, and gradient norms before the clip."""
    leaves = {
        key: torch.tensor(value, dtype=torch.float64, requires_grad=key in trained)
        for key, value in params.items()
    }
    learned = [leaf for leaf in leaves.values() if leaf.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    norms = []
    for batch in data:
        optimizer.zero_grad()
        targets = torch.from_numpy(batch["targets"].astype(np.int64))
        _, loss = tt.training_loss(leaves, tm.make_batch(batch["inputs"]), targets, cfg)
        loss.backward()  # type: ignore[no-untyped-call]
        norms.append(float(torch.nn.utils.clip_grad_norm_(learned, 0.5)))
        optimizer.step()
    return {key: leaf.detach().numpy() for key, leaf in leaves.items()}, norms


# In llama_tied the embedding has two uses, the lookup and the head.
@pytest.mark.parametrize("name", ["llama_gqa", "llama_tied", "mudd", "tokenformer", "mixtral"])
@pytest.mark.parametrize("patterns", ["blocks.1.*,!*.norm.gain", "embed", "!embed"])
def test_steps_equal_torch_without_gradients_of_the_frozen(name: str, patterns: str) -> None:
    model, cfg, params = make(name, whole_batch=True)
    patterns = patterns.replace("blocks.1.*", "blocks.0.*") if name == "tokenformer" else patterns
    if patterns.startswith("blocks") and not any(".norm.gain" in key for key in params):
        patterns = patterns.partition(",")[0]
    trained = trained_names(patterns, model.store.names())
    engine = Engine(config(name, patterns), model)
    data = batches(cfg.vocab_size, 5)
    want, norms = torch_steps(params, data, cfg, trained)
    for step, batch in enumerate(data):
        report = engine.train_step(step, LR, batch)
        assert report.grad_norm == pytest.approx(norms[step], rel=2e-3)  # as test_optimizer: 5 steps in fp32
    for key, value in model.parameters.items():
        if key not in trained:
            assert np.array_equal(value, params[key]), key
            continue
        assert not np.array_equal(value, params[key]), key
        difference = np.abs(value - want[key])  # bounds of test_steps_equal_torch_adamw
        assert np.mean(difference) <= 1e-4 and difference.max() <= 2 * LR, key


@pytest.mark.parametrize("optimizer", ELEMENTWISE)
def test_frozen_parameters_take_no_moments_and_no_memory(optimizer: str) -> None:
    reports, states = [], []
    for patterns in ("", "blocks.0.*"):
        model, cfg, _ = make("llama_gqa")
        engine = Engine(config("llama_gqa", patterns, name=optimizer), model)
        engine.train_step(0, LR, batches(cfg.vocab_size, 1)[0])
        reports.append(engine.memory_report())
        states.append(state(engine))
    everything, little = reports
    sizes = {
        key: (value.size + 15) // 16 * 64 for key, value in model.parameters.items()
    }  # bytes, rounded up to 16 elements
    trained = sum(size for key, size in sizes.items() if key.startswith("blocks.0."))
    moments = SPECS[optimizer].moments
    assert little["moments"] == moments * trained and everything["moments"] == moments * sum(sizes.values())
    assert little["gradients"] < 0.5 * everything["gradients"] and little["weights"] == everything["weights"]
    assert little["arena"] <= everything["arena"]
    kept = {key.partition("/")[2] for key in states[1] if key.startswith("first_moment/")}
    assert kept == {key for key in sizes if key.startswith("blocks.0.")}
    assert set(states[1]) < set(states[0])


def test_micro_batches_threads_and_a_resume_keep_the_bits() -> None:
    def run(steps: int, micro: int, start: dict[str, Any] | None = None) -> dict[str, Any]:
        model, cfg, _ = make("llama_tied")
        asked = config("llama_tied", "embed,blocks.*.q.w")
        engine = Engine(
            dataclasses.replace(asked, train=dataclasses.replace(asked.train, **{MICRO: micro})), model
        )
        if start:
            engine.load_state_tensors(start)
        for step, batch in enumerate(batches(cfg.vocab_size, 4)[4 - steps :]):
            engine.train_step(step, LR, batch)
        return state(engine)

    def first(micro: int) -> dict[str, Any]:
        model, cfg, _ = make("llama_tied")
        engine = Engine(config("llama_tied", "embed,blocks.*.q.w"), model)
        for step, batch in enumerate(batches(cfg.vocab_size, 4)[:2]):
            engine.train_step(step, LR, batch)
        return state(engine)

    whole = run(4, 0)
    for got in (run(4, 1), run(2, 0, first(0))):
        assert set(got) == set(whole)
        assert all(np.array_equal(got[key], value) for key, value in whole.items())


def test_two_engines_of_one_model_keep_to_their_own_patterns() -> None:
    model, cfg, params = make("llama_gqa")
    batch = batches(cfg.vocab_size, 1)[0]
    narrow = Engine(config("llama_gqa", "head"), model)
    wide = Engine(config("llama_gqa"), model)
    narrow.train_step(0, LR, {**batch, "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (BATCH, 1))})
    changed = {key for key, value in model.parameters.items() if not np.array_equal(value, params[key])}
    assert changed == {"head"}
    wide.train_step(0, LR, batch)
    assert not np.array_equal(model.parameters["embed"], params["embed"])


def test_a_run_says_what_trains_and_refuses_other_patterns(tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.steps=6", "train.save_every=0", "train.eval_every=0")
    frozen = ("train.trainable=blocks.*.attn.*",)
    straight = TinyRun(tmp_path / "straight", tiny_text, (*words, *frozen)).trained()
    assert "parameters train (train.trainable)" in straight.output
    broken = TinyRun(tmp_path / "broken", tiny_text, (*words, *frozen, "train.stop_at=3"))
    broken.stopped()
    other = TinyRun(tmp_path / "broken", tiny_text, (*words, "train.trainable=head"))
    assert other.finish_here() == 2 and "train.trainable" in other.output
    files = list(straight.checkpoints.rglob("*first_moment*"))
    assert files and sum(file.stat().st_size for file in files) < 60_000  # of 4 matrices of 32 x 32 per block


def test_a_bad_pattern_ends_with_2_before_anything_is_built(tiny_text: Path, tmp_path: Path) -> None:
    for words, told in (
        ("train.trainable=blocks.*.attn.qq.w", "similar names: blocks.*.attn.q.w"),
        ("train.trainable=!*", "expected at least one parameter to train"),
    ):
        for more in ((), ("--plan",)):
            run = TinyRun(tmp_path / "bad", tiny_text, (words, *more))
            assert run.finish_here() == 2, run.tail
            assert told in run.output
