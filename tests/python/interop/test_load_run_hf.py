"""mc.load and mc.load_run of folders that stock transformers wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import mudd_core as mc
from hf_models import MODELS, make
from mudd_core.base.errors import UserError
from mudd_core.data.tokenizers.files import tokenizer_files
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer
from near import REORDERED


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral_plain", "gemma3", "phi3", "gpt_neox"])
def test_a_folder_of_transformers_opens_with_its_logits(name: str, tmp_path: Path) -> None:
    theirs = make(name, tmp_path / name)
    for file, data in tokenizer_files(ByteTokenizer()).items():
        (tmp_path / name / file).write_bytes(data)
    run = mc.load_run(tmp_path / name)
    ids = np.random.default_rng(1).integers(0, MODELS[name][1]["vocab_size"], (2, 9))
    with torch.no_grad():
        want = theirs(torch.tensor(ids)).logits.numpy()
    # PyTorch computes in float32 too, with its sums in another order.
    np.testing.assert_allclose(run.model(ids), want, rtol=0, atol=2e-4 * np.abs(want).max())
    assert (run.step, run.checkpoints, run.metrics, run.validations) == (None, {}, {}, {})
    assert run.tokenizer is not None and run.tokenizer.encode("ab") == [97, 98]
    assert isinstance(run.generate("ab", max_tokens=3, temperature=0), str)
    again = mc.Model.load(run.model.save(tmp_path / "ours"))
    assert np.array_equal(again(ids), run.model(ids))


def test_without_a_tokenizer_ids_are_the_way(tmp_path: Path) -> None:
    make("llama", tmp_path / "llama")
    run = mc.load_run(tmp_path / "llama")
    assert mc.load(tmp_path / "llama").tokenizer is None
    with pytest.raises(UserError, match=r"tokenizer: .* has none; call run\.model\.generate\(ids\)"):
        run.tokenizer  # noqa: B018
    with pytest.raises(ValueError, match=r"has none; call run\.model\.generate\(ids\)"):
        run.generate("ab")
    assert len(list(run.model.generate([1, 2], max_tokens=3))) == 3
    with pytest.raises(
        ValueError, match=r"\[load_run\] step: expected none for a folder of Hugging Face, got 3"
    ):
        mc.load_run(tmp_path / "llama", step=3)


def test_further_tensors_are_noted_and_left_out(tmp_path: Path) -> None:
    theirs = make("llama", tmp_path / "llama")
    file = tmp_path / "llama" / "model.safetensors"
    ids = np.random.default_rng(1).integers(0, MODELS["llama"][1]["vocab_size"], (2, 9))
    further = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "model.rotary_emb.original_inv_freq": torch.ones(4),
        "v_head.summary.weight": torch.ones(1, 4),
    }
    save_file({**load_file(file), **further}, file, metadata={"format": "pt"})
    with pytest.warns(
        UserWarning, match=r"left out \(3\): model\.layers\.\*\.self_attn\.rotary_emb\.inv_freq, "
    ):
        model = mc.load_run(tmp_path / "llama").model
    with torch.no_grad():
        want = theirs(torch.tensor(ids)).logits.numpy()
    # PyTorch computes in float32 too, with its sums in another order.
    np.testing.assert_allclose(model(ids), want, rtol=0, atol=2e-4 * np.abs(want).max())
    save_file({**load_file(file), "model.layers.0.self_attn.q_norm.weight": torch.ones(4)}, file)
    with pytest.raises(ValueError, match=r"q_norm\.weight' has no place in this model"):  # it affects logits
        mc.load_run(tmp_path / "llama")


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral_plain"])
def test_capture_and_loss_take_inputs_and_targets(name: str, tmp_path: Path) -> None:
    theirs = make(name, tmp_path / name)
    model = mc.load_run(tmp_path / name).model
    ids = np.random.default_rng(2).integers(0, MODELS[name][1]["vocab_size"], (2, 9))
    with torch.no_grad():
        want = theirs(torch.tensor(ids), labels=torch.tensor(ids)).loss.item()
    batch = {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
    # PyTorch computes in float32 too, with its sums in another order.
    assert model.loss(batch) == pytest.approx(want, rel=1e-5)
    found = model.capture(ids[:, :-1], targets=ids[:, 1:], gradients=True)
    assert found.loss == pytest.approx(model.loss(batch), rel=REORDERED)
    assert "blocks.0.attn.q.w" in found.gradients
    ignored = np.where(np.arange(8) < 4, -100, ids[:, 1:])
    same = model.loss({"tokens": ids, "labels": np.where(np.arange(9) < 5, -100, ids)})
    assert model.loss({**batch, "targets": ignored}) == pytest.approx(same, rel=REORDERED)
