"""Export of MUDDFormer's connection weights: compared with the formula, through the command, as HDF5 and a picture."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import mudd_core as mc
from mudd_core import cli
from mudd_core.base.errors import UserError
from mudd_core.engine.model import Model
from mudd_core.engine.muddformer_weights import measured_weights
from mudd_core.tools import heatmap
from reference import torch_models as tm
from small_models import CASES, make, make_batch
from tiny_muddformer import tiny_words


def whole_text(ids: Any) -> dict[str, Any]:
    return {"inputs": ids, "targets": ids}


@pytest.mark.parametrize("name", ["mudd", "mudd_norms", "mudd_experts"])
def test_means_and_spreads_are_those_of_the_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cfg, params = make(name)
    ids = [make_batch(cfg.vocab_size, 2, 9, seed=seed)["inputs"] for seed in range(2)]
    seen: dict[int, list[Any]] = {}
    whole = type(cfg).weights  # type: ignore[union-attr]

    def watch(self: Any, p: Any, n: int, newest: Any, batch: Any) -> Any:
        made = whole(self, p, n, newest, batch)
        seen.setdefault(n, []).append(made.detach().numpy().reshape(-1, *made.shape[2:]))
        return made

    monkeypatch.setattr(type(cfg), "weights", watch)
    wide = {key: torch.tensor(np.asarray(value, np.float64)) for key, value in params.items()}
    for batch in ids:
        tm.model_logits(wide, tm.make_batch(batch), cfg)
    got = measured_weights(model, [whole_text(one) for one in ids])
    assert got.tokens == 36
    for layer, made in seen.items():
        every = np.concatenate(made)
        count, states = every.shape[1:]
        at = slice(4 - count, 4)
        want_static = params[f"blocks.{layer}.mix.bias"]
        np.testing.assert_array_equal(got.static[layer, at, :states], want_static)
        # float32 means in another order.
        np.testing.assert_allclose(
            got.static[layer, at, :states] + got.mean[layer, at, :states], every.mean(0), atol=1e-5
        )
        np.testing.assert_allclose(got.std[layer, at, :states], every.std(0), atol=1e-5)
        assert np.isnan(got.std[layer, :, states:]).all()
        assert np.isnan(got.mean[layer, : 4 - count]).all()


@pytest.mark.parametrize("mark", ["targets", "segments", "key_mask"])
def test_padding_is_no_text(mark: str) -> None:
    model, cfg, _ = make("mudd")
    ids = make_batch(cfg.vocab_size, 2, 9, seed=3)["inputs"]
    whole = measured_weights(model, [whole_text(ids[:1]), whole_text(ids[1:, :4])])
    text = np.ones_like(ids)
    text[1, 4:] = 0
    targets = np.where(
        (text == 1) | (mark == "key_mask"), ids, -1
    )  # ignored targets and padding are independent
    batch = {"inputs": ids, "targets": targets} | ({} if mark == "targets" else {mark: text})
    got = measured_weights(model, [batch])
    assert got.tokens == whole.tokens == 13
    # float32 means in another order.
    np.testing.assert_allclose(got.mean, whole.mean, atol=1e-6)
    np.testing.assert_allclose(got.std, whole.std, atol=1e-6)


def test_static_and_sparse_models_have_their_places() -> None:
    ours, _ = CASES["mudd"]
    sparse = dataclasses.replace(ours, mix="static", streams="kvr", dilation=2, period=1)
    got = measured_weights(Model(sparse), [whole_text(np.zeros((1, 4), np.int32))])
    assert got.static.shape == (3, 3, 4)
    assert got.static[1].tolist()[0] == pytest.approx([0, np.nan, 1, np.nan], nan_ok=True)
    assert not got.std[~np.isnan(got.std)].any()


def test_models_without_mixtures_are_refused() -> None:
    model, _, _ = make("llama_gqa")
    with pytest.raises(UserError, match=r"\[weights\] model: expected a MUDDFormer"):
        measured_weights(model, [])
    model, _, _ = make("mudd")
    with pytest.raises(UserError, match="expected at least one validation sequence"):
        measured_weights(model, [])


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*tiny_words(tmp_path), "train.steps=2"]
    with mc.Trainer(mc.load_config("muddformer/tiny.py", words), tmp_path / "run") as trainer:
        trainer.fit()
    assert cli.main(["weights", "--workdir", str(tmp_path / "run"), "--windows", "3"]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "run" / "weights" / "step-2"
    assert str(folder / "weights.h5") in out and "48 tokens" in out
    with h5py.File(folder / "weights.h5") as h5:
        assert (h5.attrs["layers"], h5.attrs["streams"], h5.attrs["states"], h5.attrs["tokens"]) == (
            2,
            4,
            3,
            48,
        )
        mean = h5["dynamic_mean"][:].reshape(2, 4, 3)
        assert np.isfinite(mean[0, :, :2]).all() and np.isnan(mean[0, :, 2]).all()
        assert np.isfinite(mean[1, 3]).all() and np.isnan(mean[1, :3]).all()
    root = ET.fromstring((folder / "weights.svg").read_text())
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) > 2 * (8 + 3)
    capsys.readouterr()
    assert cli.main(["weights", "--help"]) == 0 and "--windows" in capsys.readouterr().out


def test_colours_are_white_at_zero_and_dark_at_the_ends() -> None:
    assert heatmap.color(0.0, 2.0) == "#ffffff" == heatmap.color(1.0, 0.0)
    assert heatmap.color(2.0, 2.0) == "#b2182b" and heatmap.color(-9.0, 2.0) == "#2166ac"


def test_cells_are_large_and_have_names() -> None:
    panel = heatmap.Panel("query", [[1.0, None], [0.5, -2.0]])
    picture = heatmap.svg(
        "T",
        [[panel]],
        x_label="x",
        y_label="y",
        row_names=["block <0>"],
        column_names=["embedding", "block 0"],
    )
    root = ET.fromstring(picture)
    cells = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
    assert len(cells) == 3
    assert all(int(cell.get("width", "0")) >= 25 and int(cell.get("height", "0")) >= 25 for cell in cells)
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"block <0>", "1", "embedding", "block 0"} <= set(words), "a row or column has no name"
    assert "<title>query 1, block 0: -2</title>" in picture
