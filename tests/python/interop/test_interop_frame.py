"""The interop framework with a made-up original program: layouts in both directions, batches, gradients, training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import interop
from mudd_core.config import TransformerPPConfig
from mudd_core.interop.layout import Entry
from mudd_core.interop.system import System, as_ids
from near import REORDERED

D, H, F, L, V = 16, 2, 24, 2, 37
SETTINGS = {"width": D, "heads": H, "ffn": F, "layers": L, "vocab": V, "window": 12}


class Stacked(System[TransformerPPConfig]):
    """Layers stacked at axis 1, q, k and v fused and [out, in], gains stored minus one, a head [D, V]."""

    normalize = "all_slots"
    families = ("transformer_pp",)

    def model_config(self, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
        return TransformerPPConfig(
            vocab_size=shapes["embed"][0],
            max_seq_len=config["window"],
            d_model=config["width"],
            n_layer=config["layers"],
            n_head=config["heads"],
            d_ff=config["ffn"],
        )

    def original_config(self, model: Any) -> dict[str, Any]:
        return dict(SETTINGS, vocab=model.vocab_size, window=model.max_seq_len)

    def entries(self, model: Any, config: Mapping[str, Any]) -> list[Entry]:
        every = [Entry("embed", "embed"), Entry("head", "head", axes=(1, 0))]
        every.append(Entry("final_norm.gain", "norms", index=(2 * L,), offset=1.0))
        for layer in range(L):
            block = f"blocks.{layer}"
            for i, name in enumerate("qkv"):
                every.append(
                    Entry(f"{block}.attn.{name}.w", "qkv", (3, D, L, D), (i, slice(None), layer), (1, 0))
                )
            every.append(Entry(f"{block}.attn.o.w", "o", index=(slice(None), layer)))
            every += [
                Entry(f"{block}.ffn.{n}.w", n, index=(slice(None), layer)) for n in ("gate", "up", "down")
            ]
            every.append(Entry(f"{block}.attn.norm.gain", "norms", index=(2 * layer,), offset=1.0))
            every.append(Entry(f"{block}.ffn.norm.gain", "norms", index=(2 * layer + 1,), offset=1.0))
        return every

    def shapes(self, model: Any, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return {
            "embed": (V, D),
            "head": (D, V),
            "norms": (2 * L + 1, D),
            "qkv": (3 * D, L, D),
            "o": (D, L, D),
            "gate": (D, L, F),
            "up": (D, L, F),
            "down": (F, L, D),
        }

    def batch(self, config: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        tokens = as_ids(batch["tokens"], "tokens")
        return {"inputs": tokens[:, :-1], "targets": np.where(tokens[:, 1:] == 0, -1, tokens[:, 1:])}


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    page = ModuleType("mudd_core.interop.stacked")
    page.SYSTEM = Stacked()  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, page.__name__, page)
    known = interop.systems() | {"stacked": page.__name__}
    monkeypatch.setattr(interop, "systems", lambda: known)
    yield


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = Stacked().shapes(None, SETTINGS)
    return {name: 0.3 * rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def tokens(seed: int = 1) -> Any:
    ids = np.random.default_rng(seed).integers(1, V, (4, 9))
    ids[1, 3] = ids[3, 8] = 0  # have no target
    return ids


def test_every_number_finds_its_place_and_the_way_back() -> None:
    given = weights()
    model = interop.load_original("stacked", SETTINGS, given)
    ours = model.parameters
    np.testing.assert_array_equal(ours["blocks.1.attn.k.w"], given["qkv"][D : 2 * D, 1, :].T)
    np.testing.assert_array_equal(ours["final_norm.gain"], given["norms"][-1] + np.float32(1))
    settings, back = interop.export_original("stacked", model)
    assert settings == SETTINGS
    for name, array in given.items():
        # One rounding of weights near 1.
        np.testing.assert_allclose(back[name], array, rtol=0, atol=2e-7, err_msg=name)
    plain = mc.Model(model.config)
    for name, view in ours.items():
        plain.set_parameter(name, view)
    settings, same = interop.export_original("stacked", plain)
    assert settings["vocab"] == V and all(np.array_equal(same[name], back[name]) for name in back)


def test_loss_and_gradients_in_their_words() -> None:
    model = interop.load_original("stacked", SETTINGS, weights())
    batch = {"tokens": tokens()}
    loss, gradients = model.loss_and_gradients(batch)
    assert loss == model.loss(batch)
    assert {name: g.shape for name, g in gradients.items()} == Stacked().shapes(None, SETTINGS)
    ids = batch["tokens"][:, :-1]
    logits = model.logits(batch).astype(np.float64)
    picked = np.take_along_axis(logits, batch["tokens"][:, 1:, None], 2)[..., 0]
    nats = (np.log(np.exp(logits).sum(-1)) - picked) * (batch["tokens"][:, 1:] != 0)
    assert loss == pytest.approx(nats.sum() / ids.size, rel=REORDERED)
    for name, index in (("qkv", (D + 3, 1, 5)), ("norms", (2, 7)), ("head", (4, 8))):
        moved = []
        for step in (1e-2, -1e-2):
            theirs = weights()
            theirs[name][index] += step
            moved.append(interop.load_original("stacked", SETTINGS, theirs).loss(batch))
        slope = (moved[0] - moved[1]) / 2e-2
        # A difference quotient of float32 losses.
        assert gradients[name][index] == pytest.approx(slope, rel=2e-2, abs=2e-5), name


def test_training_on_their_batches_needs_no_text() -> None:
    config = mc.load_config("tiny.py", ["train.batch_size=4", "train.seq_len=8"])
    model = interop.load_original("stacked", SETTINGS, weights())
    before = model.loss({"tokens": tokens()})
    trainer = mc.Trainer(config, model=model)
    assert trainer.config.model == model.config and trainer.config.loss.normalize == "all_slots"
    wide = mc.Trainer(config, model=mc.Model(model.config, precision="bf16"))
    assert wide.config.train.precision == "bf16"  # of the model; else a resume would change it
    record = trainer.step({"tokens": tokens()})
    assert record.loss == pytest.approx(before, rel=REORDERED)
    assert model.loss({"tokens": tokens()}) < before
    other = mc.Model(dataclasses.replace(model.config))
    for name, array in interop.load_original("stacked", SETTINGS, weights()).parameters.items():
        other.set_parameter(name, array)
    batch = Stacked().batch(SETTINGS, {"tokens": tokens()})
    positions = np.tile(np.arange(8, dtype=np.int32), (4, 1))
    other.normalize = model.normalize
    same = mc.Trainer(config, model=other)
    same.step({**batch, "positions": positions})  # another graph, the same weights and moments
    same.step(batch)
    trainer.step({"tokens": tokens()})
    for name, view in model.parameters.items():
        np.testing.assert_array_equal(view, other.parameters[name], err_msg=name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("o"), "'o' is missing"),
        (lambda w: w.update(more=np.zeros(3)), "'more' has no place"),
        (
            lambda w: w.update(o=np.zeros((D, L, D + 1))),
            r"'o' has shape \(16, 2, 17\), expected \(16, 2, 16\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(change: Any, words: str) -> None:
    given = weights()
    change(given)
    with pytest.raises(ValueError, match=words):
        interop.load_original("stacked", SETTINGS, given)


def test_unknown_system_lists_the_known() -> None:
    with pytest.raises(ValueError, match="muddformer_jax"):
        interop.load_original("muddformer", SETTINGS, weights())
