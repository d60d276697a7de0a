"""The PyTorch baseline computes the same results as the reference, so the bench compares speeds of the same work."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mudd_core import config, dist
from places import ROOT
from reference import torch_models as tm
from reference import torch_training as tt
from reference.torch_mixtral import Mixtral
from reference.torch_muddformer import MuddConfig
from reference.torch_mup import Mup
from reference.torch_tokenformer import Tokenformer

BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "baselines")]

import torch_step  # noqa: E402

import bench_baselines  # noqa: E402
import bench_generate  # noqa: E402
import bench_step  # noqa: E402
import same_step  # noqa: E402
import workload  # noqa: E402
from shapes import AUX, EXPERTS, FAMILIES, SHAPES, TOP_K  # noqa: E402

TINY = replace(SHAPES["9M"], V=64, L=2, D=16, H=2, F=24, T=12, B=2)


def reference(family: str) -> tm.Config:
    """Return the reference's config of the tiny shape."""
    if family == "gpt2":
        return tm.Gpt2Config(TINY.V, TINY.L, TINY.D, TINY.H, 4 * TINY.D, TINY.T)
    if family == "mixtral":
        return Mixtral(
            TINY.V, TINY.L, TINY.D, TINY.H, TINY.H, TINY.F, experts=EXPERTS, top_k=TOP_K, aux_coef=AUX
        )
    if family == "muddformer":
        sources = ((0, 1), (0, 1, 2))
        return MuddConfig(TINY.V, TINY.L, TINY.D, TINY.H, TINY.H, (TINY.F,) * 2, (64, 64), sources)
    if family == "mup":
        head = TINY.D // TINY.H
        return Mup(TINY.V, TINY.L, TINY.D, TINY.H, 4 * TINY.D, 1 / head, TINY.T)
    if family == "tokenformer":
        return Tokenformer(TINY.V, TINY.L, TINY.D, TINY.H, (12, 12, 48), TINY.T)
    return tm.LlamaConfig(TINY.V, TINY.L, TINY.D, TINY.H, TINY.H, TINY.F)


@pytest.mark.parametrize("family", FAMILIES)
def test_baseline_matches_reference(family: str) -> None:
    shapes, cfg = workload.parameter_shapes(TINY, family), reference(family)
    assert shapes == tm.parameter_shapes(cfg)
    rng = np.random.default_rng(0)
    weights = {k: rng.normal(0.5 if k.endswith("gain") else 0, 0.2, s) for k, s in shapes.items()}
    baseline, load = torch_step.make(TINY, family)
    baseline.double()
    load(baseline, weights)
    window = workload.batch_tokens(TINY, 3)
    loss = baseline(torch.from_numpy(window[:, :-1]), torch.from_numpy(window[:, 1:]))
    want = tt.loss_and_grads(weights, window[:, :-1], window[:, 1:], cfg, dtype=torch.float64)
    assert abs(loss.item() - want.loss) < 1e-6  # the rotary tables of the baseline are float32
    count = sum(p.numel() for p in baseline.parameters())
    assert count == sum(int(np.prod(s)) for s in shapes.values())


def test_every_family_has_its_bench_shapes() -> None:
    assert set(FAMILIES) == set(config.FAMILIES)


def test_flops_of_the_three_shapes() -> None:
    per_token = [SHAPES[n].flops_per_token("transformer_pp") / 1e6 for n in ("9M", "55M", "162M")]
    # The expected values have three digits.
    np.testing.assert_allclose(per_token, [43.9, 300, 770], rtol=0.003)


def test_tokens_are_ids_with_a_skew() -> None:
    ids = workload.batch_tokens(SHAPES["9M"], 0)
    assert ids.shape == (8, 257) and ids.min() >= 0 and ids.max() < 8192
    assert (ids == workload.batch_tokens(SHAPES["9M"], 0)).all()
    assert (ids != workload.batch_tokens(SHAPES["9M"], 1)).any()
    assert np.median(ids) < 200


@pytest.mark.parametrize("family", FAMILIES)
def test_ours_takes_the_same_steps_as_the_baseline(family: str) -> None:
    """Three whole steps from equal weights have equal losses, so both benches time the same computation."""
    engine = bench_step.make_engine(TINY, family, 0, None)
    ours = []
    for step in range(3):
        window = workload.batch_tokens(TINY, step).astype(np.int32)
        batch = {"inputs": window[:, :-1].copy(), "targets": window[:, 1:].copy()}
        ours.append(engine.train_step(step, workload.LR, batch).loss)
    weights = workload.random_weights(workload.parameter_shapes(TINY, family))
    cfg = reference(family)
    windows = [workload.batch_tokens(TINY, step) for step in range(3)]
    _, losses, _ = tt.adamw_steps(
        weights,
        [(w[:, :-1], w[:, 1:]) for w in windows],
        cfg,
        lr=workload.LR,
        betas=workload.BETAS,
        eps=workload.EPS,
        weight_decay=workload.DECAY,
        clip=workload.CLIP,
        decayed={k for k, w in weights.items() if w.ndim > 1 and not k.endswith(".bias")},
    )
    # PyTorch computes in float32 too, with its sums in another order.
    np.testing.assert_allclose(ours, losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, ""),
        ({"losses": [9.0, 8.00005]}, ""),
        ({"losses": [9.0, 8.0002]}, "loss"),
        ({"losses": [9.0, 8.0002], "family": "mixtral"}, ""),
        ({"losses": [9.0, 8.0004], "family": "mixtral"}, "loss"),
        ({"losses": [9.0, float("nan")]}, "loss"),
        ({"weights": 83.7}, "weights"),
        ({"first_moment": 0.36}, "moments"),
        ({"second_moment": 0.02}, "moments"),
    ],
)
def test_a_baseline_that_takes_another_step_is_named(change: dict[str, object], word: str) -> None:
    ours: bench_baselines.Row = {
        "losses": [9.0, 8.0],
        "state": {"weights": 83.6, "first_moment": 0.35, "second_moment": 0.01},
    }
    baseline: bench_baselines.Row = {"losses": ours["losses"], "family": "transformer_pp"}
    baseline |= {k: v for k, v in change.items() if k in baseline}
    baseline["state"] = {**ours["state"], **{k: v for k, v in change.items() if k not in baseline}}
    same_step.compare(baseline, ours)
    assert same_step.another_computation(baseline, "fp32", None).partition(" ")[0] == word


def test_lengths_tell_another_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of norms can tell twelve steps with decay from twelve without."""
    lengths = []
    for decay in (workload.DECAY, 0.0):
        monkeypatch.setattr(bench_step, "DECAY", decay)
        # Gains are ones and do not decay; with this vocabulary they are half of the norm, as in 9M.
        shape = replace(TINY, V=4096)
        engine = bench_step.make_engine(shape, "transformer_pp", 0, None)
        for step in range(12):
            window = workload.batch_tokens(shape, step).astype(np.int32)
            engine.train_step(
                step, workload.LR, {"inputs": window[:, :-1].copy(), "targets": window[:, 1:].copy()}
            )
        lengths.append(bench_step.state_lengths(engine, dist.alone(), 1))
    assert abs(lengths[0]["weights"] / lengths[1]["weights"] - 1) > same_step.STATE_TOLERANCE["weights"]
    assert lengths[0]["first_moment"] > 0 and lengths[0]["second_moment"] > 0


def test_baselines_get_the_cap_and_a_missing_jax_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUDD_MAX_ISA", "avx2")
    assert bench_baselines.environment("eager", 2)["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "MUDD_BENCH_JAX_PYTHON" in bench_baselines.missing_jax(None)
    assert "has no jax" in bench_baselines.missing_jax(Path("/nowhere/python"))


def test_generation_reads_its_weights_once() -> None:
    s = SHAPES["55M"]
    model = bench_generate.make_model(TINY, "transformer_pp", 20)
    assert model.config.max_seq_len == 20
    assert len(list(model.generate(np.arange(4), max_tokens=16))) == 16
    # 47.1 M weights of matmuls (of the embedding one row is read), and keys and values of 100 tokens
    want = 4 * (12 * (4 * 512**2 + 3 * 512 * 1408) + 16384 * 512) + 100 * 2 * 12 * 512 * 4
    assert bench_generate.bytes_per_token(s, "transformer_pp", 100, 4) == want
