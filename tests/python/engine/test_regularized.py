"""Label smoothing and the z-loss: PyTorch's loss and gradients, equal bits everywhere, and a plain loss to compare."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, LossConfig, MeshConfig
from mudd_core.config.check import check_config
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, config_in_shards, train
from small_models import CASES

RULE = LossConfig(label_smoothing=0.2, z=0.01)
FAMILIES = ("llama_gqa", "gpt2", "mup", "mudd", "tokenformer", "mixtral")
MODEL = mc.TransformerPPConfig(vocab_size=61, max_seq_len=16, d_model=32, n_layer=2, n_head=2, d_ff=48)


def case_of(family: str) -> Any:
    """Return the config of a small model of a family."""
    return next(ours for name, (ours, _) in CASES.items() if name.startswith(family))


def torch_objective(logits: torch.Tensor, targets: Any) -> torch.Tensor:
    """Return the mean objective of logits [B, T, V] in float64."""
    t = torch.tensor(targets).long()
    t = t.masked_fill(t < 0, -100)
    smooth = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), t.flatten(), label_smoothing=RULE.label_smoothing
    )
    return smooth + RULE.z * (logits.logsumexp(-1) ** 2)[t >= 0].mean()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_objective_of_torch_in_both_executors(family: str) -> None:
    config = case_of(family)
    model = mc.Model(config, seed=1)
    rng = np.random.default_rng(0)
    batch = {n: rng.integers(config.vocab_size, size=(4, 12), dtype=np.int32) for n in ("inputs", "targets")}
    batch["targets"][rng.random((4, 12)) < 0.25] = -1
    plain, without = model.loss_and_gradients(batch)
    model.regularized = RULE
    loss, gradients = in_both_executors(model, batch)
    exact = torch_objective(torch.tensor(model.logits(batch).astype(np.float64)), batch["targets"]).item()
    added = loss - plain  # the auxiliary loss of a mixture is in both
    nats, targets, _ = model.evaluate(batch)
    # The logits are float32; the loss is summed in float64.
    assert abs(added - (exact - nats / targets)) <= 2e-6 * max(1.0, abs(exact))
    assert any(not np.array_equal(gradients[name], without[name]) for name in gradients)
    assert model.evaluate(batch) == (nats, targets, model.evaluate(batch)[2])  # an evaluation is plain
    assert model.loss(batch) == plain


def regularized(config: Config) -> Config:
    return replace(config, loss=RULE)


@pytest.mark.parametrize("normalize", ["valid", "all_slots"])
def test_ranks_and_micro_batches_have_the_bits_of_one(normalize: str) -> None:
    config = replace(config_in_shards(MODEL), loss=replace(RULE, normalize=normalize))
    want = train(config, 1)
    assert want.metrics["objective"] not in (0, float.fromhex(want.losses[-1]))
    for world in (2, 4):
        assert train(config, world) == want
    assert train(replace(config, mesh=MeshConfig(zero=3)), 2) == want
    assert train(replace(config, train=replace(config.train, micro_batch_size=2)), 1) == want


def test_a_step_reports_the_cross_entropy_and_the_objective() -> None:
    config = regularized(config_in_shards(MODEL))
    model = mc.Model(MODEL, seed=1)
    batch = batch_of(config, 0)
    plain = model.loss(batch, shards=8)
    engine = Engine(config, model)
    objective = model.loss_and_gradients(batch, shards=8)[0]
    report = engine.train_step(0, 1e-3, batch)
    assert report.loss == plain
    assert report.objective == objective == engine.metrics()["objective"]
    bare = Engine(config_in_shards(MODEL), mc.Model(MODEL, seed=1))
    untouched = bare.train_step(0, 1e-3, batch)
    assert untouched.objective == untouched.loss == plain and "objective" not in bare.metrics()


def faults(**loss: Any) -> str:
    """Return the message about a config with these fields of the loss."""
    config = mc.load_config("tiny.py")
    with pytest.raises(UserError) as error:
        check_config(replace(config, loss=LossConfig(**loss)))
    return str(error.value)


def test_what_cannot_be_combined_is_named() -> None:
    smooth = {"label_smoothing": 0.6}
    for fields, said in [
        ({"teacher": "t.h5", "z": 1e-4}, "loss.z: expected 0 with loss.teacher, got 0.0001"),
        ({"teacher": "t.h5", "label_smoothing": 0.1}, "loss.label_smoothing: expected 0 with loss.teacher"),
        ({"kind": "dpo", **smooth}, "loss.label_smoothing: expected at most 0.5 for loss.kind=dpo, got 0.6"),
        ({"kind": "dpo", "z": 0.1}, "loss.z: expected 0 for loss.kind=dpo, got 0.1"),
    ]:
        assert said in faults(**fields)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("loss.z=-1", "loss.z"),
        ("loss.z=nan", "loss.z"),
        ("loss.label_smoothing=1.5", "loss.label_smoothing"),
        ("z_loss_multiplier=1e-4", "loss.z=1e-4"),
        ("label_smoothing_factor=0.1", "loss.label_smoothing=0.1"),
    ],
)
def test_a_wrong_value_and_a_foreign_name_exit_with_2(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config=tiny.py", "--plan", word]) == 2
    assert said in capsys.readouterr().err


def test_a_run_logs_both_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "loss.label_smoothing=0.1",
        "loss.z=1e-4",
        "train.steps=2",
        "train.log_every=1",
        "train.threads=1",
    ]
    small = [
        "train.batch_size=2",
        "train.seq_len=16",
        "data.tokenizer=bytes",
        f"--workdir={tmp_path / 'run'}",
    ]
    (tmp_path / "text.txt").write_text("one line of text, repeated. " * 200)
    small += [f"data.path={tmp_path / 'text.txt'}", f"data.cache_dir={tmp_path / 'cache'}"]
    assert main(["--config=tiny.py", *words, *small]) == 0, capsys.readouterr().err
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert len(steps) == 2 and all(row["objective"] not in (0, row["loss"]) for row in steps)
    assert not any("objective" in row for row in rows if "val_loss" in row)
