"""What a user writes, for a type checker: no expression is of type Any (tests/python/base/test_typed_api.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias, assert_type

import numpy as np

import mudd_core as mc

Floats: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"


def describe(config: mc.Config) -> str:
    """Name, family and size of a run."""
    model = config.model
    return f"{config.name}: {model.family}, {model.vocab_size} ids, {config.train.steps} steps, {config.optim.lr}"


def train(folder: Path) -> float:
    """Train a small model and look at it."""
    config = mc.load_config("tiny.py", ["train.steps=2", "train.seq_len=16", "eval.max_batches=1"])
    with mc.Trainer(config, folder) as trainer:
        record = trainer.step()
        print(record.step, record.loss, trainer.step_done, trainer.seconds)
        summary = trainer.fit()
        validation = trainer.validate()
        tokenizer = trainer.tokenizer
        model = trainer.model
        look(trainer.model)
        for batch in trainer.validation_batches():
            print(sorted(batch), batch["inputs"].shape)
        if tokenizer is not None:
            ids = tokenizer.encode("a text")
            print(tokenizer.decode([*model.generate(ids, max_tokens=5)]))
        print(summary.final_hash, validation.val_loss, describe(trainer.config))
        return model.loss({"inputs": [[1, 2]], "targets": [[2, 3]]})


def look(model: mc.Model) -> None:
    """Logits, gradients and weights."""
    logits = model.logits([[1, 2, 3]])
    assert_type(logits, Floats)
    loss, gradients = model.loss_and_gradients({"inputs": [[1, 2]], "targets": [[2, 3]]})
    for name, weight in model.parameters.items():
        print(name, weight.shape, gradients[name].shape, loss, logits.shape, model.n_parameters)


def double(a: Floats) -> Floats:
    """An op of one's own."""
    return 2 * a


def double_backward(dy: Floats, a: Floats) -> Floats:
    """Its gradient."""
    return 2 * dy


def tape() -> float:
    """Operators and ops on the tape."""
    w = mc.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x, ids = np.ones((2, 2), np.float32), np.zeros(2, np.int32)
    h = mc.ops.rms_norm(w @ w * 2 - w.T[0] / 3)
    y = mc.ops.custom(double, double_backward, h)
    z = mc.ops.depth_mix(mc.Tensor([[0.5, 0.5]]), None, None, None, None, None, None, None, None, h, w)
    p = mc.ops.pattention(h, w, w)
    loss, count, _ = mc.ops.cross_entropy(h, w, ids)
    with mc.precision("bf16"):
        total = (mc.ops.linear(h, w) + y).sum() + loss.sum() / count.sum()
    total.backward()
    assert_type(x + w, mc.Tensor)
    assert_type(mc.ops.linear(x, w), mc.Tensor)
    assert_type(mc.ops.linear(x, x), Floats)
    dx, dw, _, _ = mc.ops.linear_backward(x, x, x)
    print(z, p, w.grad, dx.shape, dw.shape, w.shape, len(w), [row.item() for row in w[0]], w > 1)
    return total.item()
