"""Separate seeds for weights and data order; a schedule that is shorter than the run; GPT-2's initialization."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, GPT2Config, config_hash, load_config
from mudd_core.engine.model import Model
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.loop.trainer import Trainer
from near import REORDERED
from tiny_run import CONFIG


def tiny(text: Path, *words: str) -> Config:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}")
    return load_config(str(CONFIG), [*data, *words])


def test_data_seed_keys_the_order_and_train_seed_the_weights(tiny_text: Path) -> None:
    def of(*words: str) -> tuple[bytes, bytes]:
        trainer = Trainer(tiny(tiny_text, *words))
        return trainer.model.parameters["head"].tobytes(), trainer.engine.batcher.batch(0, 8)[0].tobytes()

    weights, order = of("train.seed=3")
    assert of("train.seed=3", "data.seed=3") == (weights, order)
    other_weights, other_order = of("train.seed=5")
    assert of("train.seed=5", "data.seed=3") == (other_weights, order)
    assert of("train.seed=3", "data.seed=5") == (weights, other_order)
    assert weights != other_weights and order != other_order


def test_minus_one_keeps_the_hash_of_older_runs() -> None:
    assert config_hash(load_config("tiny.py", ["data.seed=-1"])) == config_hash(load_config("tiny.py"))
    assert config_hash(load_config("tiny.py", ["data.seed=0"])) != config_hash(load_config("tiny.py"))


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "constant"])
def test_the_rate_follows_schedule_steps_and_then_stays(schedule: str) -> None:
    words = [f"optim.schedule={schedule}", "optim.warmup_steps=10", "optim.lr=1"]
    short = load_config("tiny.py", [*words, "train.steps=100"])
    long = load_config("tiny.py", [*words, "train.steps=250", "optim.schedule_steps=100"])
    assert [learning_rate(long, t) for t in range(100)] == [learning_rate(short, t) for t in range(100)]
    final = 1.0 if schedule == "constant" else 0.1
    assert {learning_rate(long, t) for t in (100, 101, 249)} == {final}


def test_a_schedule_shorter_than_its_warm_up_is_refused() -> None:
    with pytest.raises(UserError, match=r"optim\.schedule_steps: expected 0 or at least .*\(30\), got 20"):
        load_config("tiny.py", ["optim.warmup_steps=30", "optim.schedule_steps=20"])


def test_matrices_that_write_to_the_stream_start_smaller() -> None:
    plain, scaled = (
        Model(GPT2Config(vocab_size=50, max_seq_len=8, d_model=64, n_layer=8, scale_residual_init=on), seed=4)
        for on in (False, True)
    )
    for name, value in plain.parameters.items():
        writes = name.endswith(("attn.o.w", "ffn.down.w"))
        wanted = value / np.float32(math.sqrt(2 * 8)) if writes else value
        np.testing.assert_allclose(scaled.parameters[name], wanted, rtol=REORDERED, err_msg=name)
