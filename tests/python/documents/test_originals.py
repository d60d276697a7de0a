"""Values that the original programs wrote: logits, losses, gradients, updates and greedy tokens.

The weights have the originals' names, so the output of another program also tests the mapping of names.
tests/goldens/originals/reduce.py describes the contents of each file.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mudd_core as mc
from mudd_core.config import Config, LossConfig, OptimConfig, TrainConfig
from mudd_core.interop import load_original
from mudd_core.interop.system import Original
from places import TESTS

Array = NDArray[Any]
FOLDER = TESTS / "goldens" / "originals"
SYSTEMS = {
    "muddformer": "muddformer_jax",
    "tokenformer_tokenformer": "tokenformer_jax",
    "tokenformer_gpt2": "tokenformer_jax",
    "mu_transformer": "mu_transformer",
    "hf_llama_gqa": "hf",
    "hf_mixtral": "hf",
}
# Largest differences: logits and loss absolute, gradients and updated weights relative to the tensor's largest entry.
# The originals also compute in fp32, and add up to 256 values in another order: see the tolerances in
# tests/goldens/README.md.
LOGITS, LOSS, GRADIENT, AFTER = 5e-5, 5e-6, 2e-4, 1e-5


class Golden:
    """One file: the mudd_core model with the original's weights, the batches, and the original's results."""

    def __init__(self, name: str) -> None:
        self.arrays = dict(np.load(FOLDER / f"{name}.npz", allow_pickle=False))
        self.settings = json.loads(str(self.arrays["about"]))["settings"]
        self.model: Original = load_original(SYSTEMS[name], self.settings, self.under("w"))

    def under(self, prefix: str) -> dict[str, Array]:
        return {k[len(prefix) + 1 :]: x for k, x in self.arrays.items() if k.startswith(prefix + "/")}

    def batches(self) -> list[dict[str, Array]]:
        z = self.arrays
        if "batches" in z:
            return [{"tokens": rows} for rows in z["batches"]]
        if "labels" in z:
            return [{"tokens": t, "labels": y} for t, y in zip(z["tokens"], z["labels"], strict=True)]
        return [{"tokens": z["tokens"]}] if "tokens" in z else [self.under("batch")]


@pytest.fixture(scope="module", params=SYSTEMS)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def compare(ours: dict[str, Array], theirs: dict[str, Array], tolerance: float) -> None:
    """Compare norm, largest entry and sampled entries of every tensor; for gradients that are exactly zero use an
    absolute bound.
    """
    assert set(ours) == set(theirs)
    for name, want in theirs.items():
        flat = np.asarray(ours[name], np.float64).ravel()
        at = np.unique(np.linspace(0, flat.size - 1, min(flat.size, 16)).round().astype(np.int64))
        got = np.concatenate([[np.sqrt((flat**2).sum()), np.abs(flat).max()], flat[at]])
        scale = np.concatenate([[max(want[0], 1e-4)], np.full(got.size - 1, max(want[1], 1e-4))])
        worst = float((np.abs(got - want) / scale).max())
        assert worst <= tolerance, f"{name}: {worst:.1e} of the largest entry, allowed {tolerance:.1e}"


def test_logits_loss_and_gradients_are_the_programs(golden: Golden) -> None:
    batch = golden.batches()[0]
    logits = golden.model.logits(batch).reshape(-1, golden.arrays["logits"].shape[-1])
    np.testing.assert_allclose(logits[golden.arrays["rows"]], golden.arrays["logits"], atol=LOGITS, rtol=0)
    loss, gradients = golden.model.loss_and_gradients(batch)
    assert abs(loss - float(golden.arrays["loss"])) <= LOSS
    compare(gradients, golden.under("g"), GRADIENT)


def test_the_weights_come_back_as_the_program_wrote_them(golden: Golden) -> None:
    back = golden.model.original_weights()
    assert set(back) == set(golden.under("w"))
    assert all(np.array_equal(back[name], x) for name, x in golden.under("w").items())


HF_OPTIM = OptimConfig(
    lr=1e-3, beta2=0.95, eps=1e-8, weight_decay=0.1, decay="no_norm_no_bias", schedule="constant"
)
MUP_OPTIM = OptimConfig(
    lr=1e-2,
    rule="mup",
    weight_decay=0.0,
    schedule="linear",
    warmup_steps=2,
    warmup="floor",
    final_lr_ratio=1e-4,
)


@pytest.mark.parametrize(
    ("name", "optim", "loss"),
    [
        ("hf_llama_gqa", HF_OPTIM, LossConfig()),
        ("hf_mixtral", HF_OPTIM, LossConfig()),
        ("mu_transformer", MUP_OPTIM, LossConfig(normalize="all_slots")),
    ],
)
def test_three_updates_end_at_the_programs_weights(name: str, optim: OptimConfig, loss: LossConfig) -> None:
    golden = Golden(name)
    batches = golden.batches()
    size, length = batches[0]["tokens"].shape
    train = TrainConfig(steps=10, batch_size=size, seq_len=length, logical_shards=1)
    config = Config(name=name, model=golden.model.config, train=train, optim=optim, loss=loss)
    with mc.Trainer(config, model=golden.model) as trainer:
        records = [trainer.step(batch) for batch in batches]
    if "step_losses" in golden.arrays:
        np.testing.assert_allclose([r.loss for r in records], golden.arrays["step_losses"], atol=LOSS, rtol=0)
        # The original computes in float32 and adds in another order.
        np.testing.assert_allclose(
            [r.grad_norm for r in records], golden.arrays["step_grad_norms"], rtol=3e-5
        )
    compare(golden.model.original_weights(), golden.under("after"), AFTER)


@pytest.mark.parametrize("name", ["hf_llama_gqa", "hf_mixtral"])
def test_greedy_tokens_are_the_programs(name: str) -> None:
    golden = Golden(name)
    for prompt, sequence in zip(golden.arrays["prompt"], golden.arrays["greedy"], strict=True):
        rest = sequence[len(prompt) :]
        got = list(golden.model.generate([int(t) for t in prompt], max_tokens=len(rest), temperature=0.0))
        assert got == [int(t) for t in rest]


def test_a_swapped_pair_of_weights_is_seen() -> None:
    golden = Golden("mu_transformer")
    weights = golden.under("w")
    weights["w_aq"], weights["w_ak"] = weights["w_ak"], weights["w_aq"]
    other = load_original("mu_transformer", golden.settings, weights)
    got = other.logits(golden.batches()[0]).reshape(-1, golden.arrays["logits"].shape[-1])
    assert np.abs(got[golden.arrays["rows"]] - golden.arrays["logits"]).max() > 100 * LOGITS


def test_every_file_says_who_made_its_numbers() -> None:
    for file in sorted(FOLDER.glob("*.npz")):
        about = json.loads(str(np.load(file, allow_pickle=False)["about"]))
        assert about["program"] and about["reduced"], file
    assert {file.stem for file in FOLDER.glob("*.npz")} == set(SYSTEMS)
