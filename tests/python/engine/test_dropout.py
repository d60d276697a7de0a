"""GPT-2's dropout: against PyTorch with the same masks, bits by seed, step and sample, and none outside of training."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core.base.errors import UserError
from mudd_core.config import Config, GPT2Config, OptimConfig, TrainConfig, check_config
from mudd_core.engine.engine import Engine
from reference import numpy_dropout
from reference import torch_models as tm
from reference import torch_training as tt
from reference.bounds import LOSS
from small_models import equal, make, make_batch, require_gradients

RATES = {"embd_dropout": 0.2, "attn_dropout": 0.3, "resid_dropout": 0.1}
SMALL = GPT2Config(vocab_size=61, max_seq_len=40, d_model=36, n_layer=2, n_head=3, d_ff=52)


class Dropped(tm.Gpt2Config):
    """The reference with the masks that mudd_core draws at seed 0 and step 0."""

    def drop(self, place: str, x: torch.Tensor) -> torch.Tensor:
        scores = place.endswith("scores")  # [B, H, T, keys], else [B, T, D]
        B, T = x.shape[0], x.shape[2 if scores else 1]
        rate = RATES["attn_dropout" if scores else "embd_dropout" if place == "embed" else "resid_dropout"]
        sample, position, element = np.ogrid[:B, :T, : x.shape[-1]]
        if scores:
            head = np.arange(x.shape[1])[None, :, None, None]
            sample, position, element = sample[:, None], position[:, None], (head << 22) + element[:, None]
        mask = numpy_dropout.factors(rate, f"dropout.{place}", sample, position, element)
        return x * torch.from_numpy(mask).to(x.dtype)


@pytest.mark.parametrize("shape", [(2, 7), (3, 33)])
def test_loss_and_gradients_equal_autograd_with_the_same_masks(shape: tuple[int, int]) -> None:
    _, cfg, params = make("gpt2")
    model = mc.Model(dataclasses.replace(SMALL, **RATES), seed=0)
    for name, array in params.items():
        model.set_parameter(name, array)
    batch = make_batch(cfg.vocab_size, *shape)
    dropped = Dropped(**dataclasses.asdict(cfg))
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], dropped, dtype=torch.float64)
    plain = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64)
    loss, gradients = model.loss_and_gradients(batch)
    assert loss == pytest.approx(want.loss, rel=LOSS) and abs(plain.loss - want.loss) > 100 * LOSS
    require_gradients(gradients, want.grads)


def run(
    steps: int = 2, seed: int = 0, threads: int = 0, rates: dict[str, float] = RATES, **train: Any
) -> Any:
    """Return the state after some steps."""
    model = dataclasses.replace(SMALL, **rates)
    config = Config(
        name="test",
        model=model,
        train=TrainConfig(steps=9, batch_size=8, seq_len=16, seed=seed, **train),
        optim=OptimConfig(lr=1e-2),
    )
    try:
        mc.set_num_threads(threads)
        engine = Engine(config, mc.Model(model, seed=4, precision=train.get("precision", "fp32")))
        for step in range(steps):
            engine.train_step(step, 1e-2, make_batch(61, 8, 16, seed=step))
        return {name: np.array(value) for name, value in engine.state_tensors().items()}
    finally:
        mc.set_num_threads(0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bits_depend_on_seed_step_and_sample_alone(precision: str) -> None:
    want = run(precision=precision)
    for options in (
        {"micro_batch_size": 1},
        {"micro_batch_size": 2},
        {"recompute": True},
        {"threads": 1},
        {"threads": 3},
    ):
        assert equal(run(precision=precision, **options), want), options
    assert not equal(run(precision=precision, seed=1), want)
    for name in RATES:
        assert not equal(run(precision=precision, rates=RATES | {name: 0.0}), want), name


def test_zero_is_the_model_without_dropout() -> None:
    assert equal(run(rates=dict.fromkeys(RATES, 0.0)), run(rates={}))


def test_nothing_is_dropped_in_evaluation_and_generation_and_both_executors_draw_alike() -> None:
    model, plain = mc.Model(dataclasses.replace(SMALL, **RATES), seed=4), mc.Model(SMALL, seed=4)
    batch = make_batch(61, 8, 16)
    assert np.array_equal(model.logits(batch["inputs"]), plain.logits(batch["inputs"]))
    assert model.evaluate(batch) == plain.evaluate(batch)
    assert list(model.generate([1, 2], max_tokens=9)) == list(plain.generate([1, 2], max_tokens=9))
    in_both_executors(model, batch, shards=4)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_outside_of_its_range_is_refused(name: str, rate: float) -> None:
    with pytest.raises(UserError, match=rf"\[config\] model.{name}: expected"):
        check_config(Config(model=dataclasses.replace(SMALL, **{name: rate})))
