"""mc.load and mc.load_run of folders that the stock transformers library wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import MODELS, make
from mudd_core.data.tokenize import ByteTokenizer
from mudd_core.data.tokenizer_files import tokenizer_files


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral_plain"])
def test_a_folder_of_transformers_opens_with_its_logits(name: str, tmp_path: Path) -> None:
    theirs = make(name, tmp_path / name)
    for file, data in tokenizer_files(ByteTokenizer()).items():
        (tmp_path / name / file).write_bytes(data)
    run = mc.load_run(tmp_path / name)
    ids = np.random.default_rng(1).integers(0, MODELS[name][1]["vocab_size"], (2, 9))
    with torch.no_grad():
        want = theirs(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(run.model(ids), want, rtol=0, atol=2e-4 * np.abs(want).max())
    assert (run.step, run.checkpoints, run.metrics, run.validations) == (None, {}, {}, {})
    assert run.tokenizer is not None and run.tokenizer.encode("ab") == [97, 98]
    assert isinstance(run.generate("ab", max_tokens=3, temperature=0), str)
    again = mc.Model.load(run.model.save(tmp_path / "ours"))
    assert np.array_equal(again(ids), run.model(ids))


def test_without_a_tokenizer_ids_are_the_way(tmp_path: Path) -> None:
    make("llama", tmp_path / "llama")
    run = mc.load_run(tmp_path / "llama")
    assert run.tokenizer is None and mc.load(tmp_path / "llama").tokenizer is None
    with pytest.raises(ValueError, match=r"which has none; call run\.model\.generate\(ids\)"):
        run.generate("ab")
    assert len(list(run.model.generate([1, 2], max_tokens=3))) == 3
    with pytest.raises(
        ValueError, match=r"\[load_run\] step: expected none for a folder of Hugging Face, got 3"
    ):
        mc.load_run(tmp_path / "llama", step=3)
