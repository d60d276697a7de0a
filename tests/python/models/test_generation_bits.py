"""Training and generation in fp32 have the same bits, so a policy's log-probabilities need no second pass.

docs/same-bits.md, "Training and generation", explains the use for reinforcement learning.
"""

from __future__ import annotations

import numpy as np
import pytest

from mudd_core import ops
from mudd_core.engine.model import Model
from small_models import CASES, make

IGNORED = -1


def nats_in_training(model: Model, inputs: np.ndarray, row: int, position: int, target: int) -> float:
    """Return -log p of one target, computed by the graph that trains on all of `inputs` [B, T]."""
    targets = np.full(inputs.shape, IGNORED, np.int32)
    targets[row, position] = target
    # training adds the auxiliary losses of a mixture to the loss; evaluate() returns the same nats without them
    if getattr(model.config, "n_expert", 0):
        return model.evaluate({"inputs": inputs, "targets": targets})[0]
    loss, _ = model.loss_and_gradients({"inputs": inputs, "targets": targets})
    return loss * model.denominator(1.0, {"inputs": inputs, "targets": targets})


def nats_of_logits(logits_TV: np.ndarray, position: int, target: int) -> float:
    """Return -log p of one target from logits, by the op of training with an identity head, which keeps each bit."""
    vocabulary = logits_TV.shape[1]
    targets = np.full((1, len(logits_TV)), IGNORED, np.int32)
    targets[0, position] = target
    loss, _, _ = ops.cross_entropy(logits_TV[None], np.eye(vocabulary, dtype=np.float32), targets)
    return float(loss.sum())


@pytest.mark.parametrize("name", CASES)
def test_a_token_has_the_same_log_probability_in_training_and_generation(name: str) -> None:
    model, _, _ = make(name)
    assert (
        getattr(model.config, "capacity_factor", 0.0) <= 0
    )  # with a capacity, tokens compete for slots of an expert
    prompt = [3, 1, 4, 1, 5, 9, 2]
    written = list(model.generate(prompt, max_tokens=12, temperature=1.0, top_k=20, seed=7))
    ids = np.array(prompt + written, np.int32)
    generator = model._generator
    assert generator is not None

    one_by_one = np.concatenate(
        [generator.feed(ids[:1], 0, caches := generator.take_caches())]
        + [generator.feed(ids[t : t + 1], t, caches) for t in range(1, len(ids))]
    )
    prefix = generator.feed(ids, 0, generator.take_caches())
    rng = np.random.default_rng(0)
    batch = rng.integers(0, model.config.vocab_size, (4, len(ids))).astype(np.int32)
    batch[2] = ids
    for logits in (prefix, model.logits(ids), model.logits(batch)[2]):
        assert np.array_equal(one_by_one.view(np.int32), logits.view(np.int32))

    for position in (len(prompt) - 1, len(ids) - 2):
        target = int(ids[position + 1])
        generated = nats_of_logits(one_by_one, position, target)
        assert nats_in_training(model, ids[None], 0, position, target) == generated
        assert nats_in_training(model, batch, 2, position, target) == generated
