"""The models, schedules and Muon of the race's PyTorch programs."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from places import ROOT

sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "race")]

import nanochat  # noqa: E402
import nanogpt  # noqa: E402
import torch_muon  # noqa: E402
from torch_race import Plan  # noqa: E402

VOCAB, LENGTH = 32, 16


@pytest.mark.parametrize("kind", [nanogpt.Model, nanochat.Model])
def test_a_token_affects_only_later_predictions(kind: type[nanogpt.Model | nanochat.Model]) -> None:
    torch.manual_seed(0)
    model = kind(VOCAB, LENGTH)
    for weight in model.parameters():  # nanochat's blocks start with outputs of zero
        nn.init.normal_(weight, std=0.3)
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    changed = ids.clone()
    changed[:, 9] = (ids[:, 9] + 1) % VOCAB
    with torch.no_grad():
        differs = (model.logits(ids) != model.logits(changed)).any(dim=-1)
    assert not differs[:, :9].any() and differs[:, 9:].all()


def test_schedules_have_the_published_points() -> None:
    rates = [nanogpt.rate_of(step, 5000, 1e-3) for step in (0, 99, 100, 2550, 4999)]
    # The cosine at step 2,550 is not exactly in the middle of the decay.
    assert rates == pytest.approx([1e-3 / 101, 1e-3 * 100 / 101, 1e-3, 5.5e-4, 1e-4], rel=1e-5)
    factors = [nanochat.rate_factor(step, 1000) for step in (0, 39, 40, 350, 675, 1000)]
    assert factors == pytest.approx([1 / 40, 1, 1, 1, 0.525, 0.05])
    assert [nanochat.rate_factor(step, 1) for step in (0, 1)] == pytest.approx([1, 0.05])
    momenta = [nanochat.momentum_of(step, 2000) for step in (0, 200, 400, 700, 1350, 2000)]
    assert momenta == pytest.approx([0.85, 0.91, 0.97, 0.97, 0.935, 0.90])
    plan = Plan(4096, 256, 2048, 1000, 1.0)  # the batch for which the rates of nanochat are tuned
    reference = 12 * 12 * 768**2 + 12 * 6 * 6 + 4096 * 768
    decay = 0.28 * reference / (12 * 6 * 192**2 + 12 * 3 * 3 + 4096 * 192)
    assert [nanochat.decay_of(step, plan) for step in (0, 500)] == pytest.approx([decay, decay / 2])
    model = nanochat.Model(64, 16)
    peaks = [group["peak"] for group in nanochat.adamw_groups(model, plan)]
    assert peaks == pytest.approx([0.016, 0.6, 0.3, 0.005, 0.5, 0.2])
    small = Plan(4096, 256, 8, 1000, 3.0)  # 1/256 of the tokens: 1/16 of the rates, times 3
    peaks = [group["peak"] for group in nanochat.adamw_groups(model, small)]
    assert peaks == pytest.approx([0.003, 0.1125, 0.05625, 0.0009375, 0.09375, 0.6])


@pytest.mark.parametrize("shape", [(2, 24, 8), (2, 8, 24), (1, 16, 16)])
def test_muon_makes_updates_orthogonal_and_decays_weights_of_equal_sign(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    gradients, weights = (torch.randn(shape, generator=generator) for _ in range(2))
    x = torch_muon.orthogonal(gradients)
    # Five steps leave singular values within a fifth of 1. Before, the largest is over twice the smallest.
    assert torch.linalg.svdvals(x).sub(1).abs().max() < 0.2
    torch.testing.assert_close(
        torch_muon.frobenius(x).flatten(), torch.full((shape[0],), min(shape[1:]) ** 0.5)
    )
    stack = torch_muon.Stack([nn.Parameter(one) for one in weights])
    assert stack.rate_factor == pytest.approx(max(1, shape[1] / shape[2]) ** 0.5)

    def after(decay: float) -> Tensor:
        averages = torch.zeros(shape), torch.zeros(stack.squares.shape)
        settings = torch.tensor(0.9), torch.tensor(0.1), torch.tensor(decay)
        return torch_muon.updated(weights, gradients, *averages, settings)

    change = weights - after(0.0)
    torch.testing.assert_close(torch_muon.frobenius(change), 0.1 * torch_muon.frobenius(x))
    expected = torch.where(change * weights >= 0, 0.1 * 0.5 * weights, 0.0)
    # Differences of weights near 1 in fp32.
    torch.testing.assert_close(weights - after(0.5) - change, expected, rtol=1e-5, atol=1e-6)
