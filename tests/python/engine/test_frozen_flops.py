"""FLOPs of a step with frozen parameters: equal to PyTorch's count for its matmuls, and correct in reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mudd_core.config import Config, TrainConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.frozen import trained_names
from mudd_core.tools.profile import profile
from near import COUNTED
from reference import torch_models as tm
from reference import torch_training as tt
from small_models import CASES, make, make_batch
from tiny_run import TinyRun

BATCH, LENGTH = 4, 16


def engine_of(case: str, patterns: str) -> Engine:
    model, _, _ = make(case)
    train = TrainConfig(batch_size=BATCH, seq_len=LENGTH, logical_shards=1, trainable=patterns)
    return Engine(Config(name="test", model=CASES[case][0], train=train), model)


def torch_flops(case: str, trained: list[str]) -> float:
    """Return the FLOPs of forward and backward matmuls, with gradients only for the trained leaves."""
    _, cfg, params = make(case, whole_batch=True)
    leaves = {key: torch.tensor(value, requires_grad=key in trained) for key, value in params.items()}
    batch = make_batch(cfg.vocab_size, BATCH, LENGTH, seed=0)
    with FlopCounterMode(display=False) as counter:
        _, loss = tt.training_loss(
            leaves, tm.make_batch(batch["inputs"]), torch.from_numpy(batch["targets"].astype(np.int64)), cfg
        )
        loss.backward()  # type: ignore[no-untyped-call]
    return float(counter.get_total_flops())


def counted(engine: Engine) -> dict[str, float]:
    """Return the FLOPs of a step by op."""
    found: dict[str, float] = {}
    for timing in profile(engine, steps=1, warmup=0).timings:
        found[timing.op] = found.get(timing.op, 0.0) + timing.flops
    return found


# These train all of q, k and v or none: for only one of them PyTorch omits a matmul of attention.
@pytest.mark.parametrize("case", ["llama_gqa", "llama_tied"])
@pytest.mark.parametrize(
    "patterns", ["", "!embed", "blocks.1.*", "blocks.1.ffn.*", "blocks.*.ffn.down.w", "*.gain"]
)
def test_a_step_counts_the_matmuls_of_pytorch(case: str, patterns: str) -> None:
    engine = engine_of(case, patterns)
    trained = trained_names(patterns, engine.model.store.names())
    ours = counted(engine)
    # PyTorch also computes the masked half of the scores.
    assert sum(ours.values()) + ours["attention"] == pytest.approx(torch_flops(case, trained), rel=1e-6)
    computed, every, _ = engine.executor.flops
    assert computed == pytest.approx(sum(ours.values()), rel=COUNTED)
    assert computed < every or patterns in ("", "!embed")


@pytest.mark.parametrize("case", list(CASES))
def test_a_whole_step_is_three_forwards_and_a_frozen_one_less(case: str) -> None:
    computed, every, _ = engine_of(case, "").executor.flops
    assert computed == pytest.approx(every, rel=COUNTED)
    names = engine_of(case, "").model.store.names()
    last = names[-1]
    head = engine_of(case, last)
    computed, every, _ = head.executor.flops
    assert every / 3 < computed * (1 + 1e-9) < every
    shape: Any = head.model.config
    assert head.flops_per_token() == pytest.approx(
        flops_per_token(shape, shape.vocab_size, LENGTH) * computed / every
    )


def test_the_loss_counts_the_targets_that_count() -> None:
    engine = engine_of("llama_gqa", "")
    computed, every, of_loss = engine.executor.flops
    a_quarter = engine.flops_per_token(0.25)
    shape: Any = engine.model.config
    batch = make_batch(shape.vocab_size, BATCH, LENGTH, seed=0)
    batch["targets"][:, : LENGTH // 4], batch["targets"][:, LENGTH // 4 :] = 1, -1
    engine.train_step(0, 1e-3, batch)
    after, _, of_counted = engine.executor.flops
    assert 0 < of_counted == pytest.approx(of_loss / 4, rel=COUNTED)
    assert after == pytest.approx(computed - 0.75 * of_loss, rel=COUNTED)
    assert a_quarter == pytest.approx(flops_per_token(shape, shape.vocab_size, LENGTH) * after / every)


def test_the_plan_counts_what_trains(tiny_text: Path, tmp_path: Path) -> None:
    found = []
    for words in ((), ("train.trainable=head",)):
        run = TinyRun(tmp_path / "run", tiny_text, (*words, "--plan")).finished()
        found.append(next(line for line in run.output.splitlines() if "FLOPs" in line))
    assert found[0] != found[1]
