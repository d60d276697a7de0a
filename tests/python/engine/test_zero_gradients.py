"""Gradients that are exactly zero in algebra are zero in every bit: AdamW would turn rounding into whole steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from reference import torch_training as tt
from small_models import CASES, make, make_batch

SOFTMAX = [
    name for name, (ours, _) in CASES.items() if getattr(ours, "attn_act_name", "softmax") == "softmax"
]


def one_key_batch(vocab: int, shape: tuple[int, int]) -> dict[str, Any]:
    """Return a batch in which only the first position of each sequence has a target; its query sees one key."""
    batch = make_batch(vocab, *shape)
    batch["targets"][:, 1:] = -1
    return batch


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 40)])
@pytest.mark.parametrize("name", CASES)
def test_zeros_of_autograd_are_zeros(name: str, shape: tuple[int, int], precision: str) -> None:
    source, cfg, params = make(name)
    model = Model(source.config, initialize=False, precision=precision)
    for key, value in params.items():
        model.set_parameter(key, value)
    batch = one_key_batch(cfg.vocab_size, shape)
    want = tt.loss_and_grads(params, batch["inputs"], batch["targets"], cfg, dtype=torch.float64).grads
    zero = {key for key, gradient in want.items() if not gradient.any()}
    if name in SOFTMAX and not hasattr(cfg, "aux_loss"):  # a balance loss includes all positions
        assert {"blocks.0.attn.q", "blocks.0.attn.k"} <= {key.rsplit(".", 1)[0] for key in zero}
    _, gradients = model.loss_and_gradients(batch)
    assert not [key for key in zero if gradients[key].any()]


@pytest.mark.parametrize("name", ["llama_gqa", "mudd_norms", "tokenformer_baseline"])
def test_adamw_leaves_weights_without_gradient_where_they_are(name: str) -> None:
    model, cfg, params = make(name)
    train = TrainConfig(steps=3, batch_size=2, seq_len=2)
    engine = Engine(
        Config("t", model.config, train=train, optim=OptimConfig(lr=2e-3, weight_decay=0.0)), model
    )
    for step in range(3):
        engine.train_step(step, 2e-3, one_key_batch(cfg.vocab_size, (2, 2)))
    moved = {key for key, value in params.items() if not np.array_equal(model.parameters[key], value)}
    assert not [key for key in moved if ".attn.q" in key or ".attn.k" in key]
    assert {"embed", "blocks.0.attn.v.w"} <= moved


@pytest.mark.parametrize(
    ("op", "options"), [("pattention", {"norm": "softmax"}), ("moe_route", {"top_k": 1})]
)
def test_other_softmaxes_over_one_thing(op: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    x, dout = (rng.standard_normal((2, 9, 17), dtype=np.float32) for _ in range(2))
    if op == "pattention":
        key, value = (rng.standard_normal((1, 17), dtype=np.float32) for _ in range(2))
        dx, dkey, *_ = mc.ops.pattention_backward(dout, x, key, value, **options)
    else:
        w = rng.standard_normal((17, 1), dtype=np.float32)
        dx, dkey, *_ = mc.ops.moe_route_backward(dout[..., :1].copy(), x, w, **options)
    assert not dx.any() and not dkey.any()
