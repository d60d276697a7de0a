"""Folders as Mistral publishes them: transformers' weights, and a second copy with the names of Mistral's program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import SHARED, transformers
from mudd_core.cli import main
from mudd_core.interop.imported import source_facts

safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")

OWN = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "self_attn": "attention", "model.": ""}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a Mistral in one file, and consolidated.safetensors with its attention under other names."""
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**SHARED, sliding_window=None))
    model.save_pretrained(tmp_path / "hf")
    weights = {}
    for name, value in model.state_dict().items():
        for theirs, own in OWN.items():
            name = name.replace(theirs, own)
        weights[name] = value + 1
    assert {"layers.0.attention.wq.weight", "lm_head.weight"} <= weights.keys()
    safetensors.save_file(weights, tmp_path / "hf" / "consolidated.safetensors")
    return tmp_path / "hf"


def want(folder: Path) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        found: np.ndarray = model(torch.arange(20)[None]).logits.numpy()
    return found


@pytest.mark.parametrize("size", ["50GB", "20KB"])
def test_the_files_of_transformers_are_read_alone(folder: Path, tmp_path: Path, size: str) -> None:
    if size != "50GB":
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder, max_shard_size=size)
        assert (folder / "model.safetensors.index.json").is_file()
    assert main(["import", str(folder), f"--workdir={tmp_path / 'run'}", "--tokenizer=bytes"]) == 0
    for found in (folder, tmp_path / "run"):
        logits = mc.load(found).model.logits(np.arange(20)[None])
        # PyTorch computes in float32 too, with its sums in another order.
        assert np.abs(logits - want(folder)).max() < 1e-5
    facts = source_facts(folder)
    (folder / "consolidated.safetensors").unlink()  # to free the disk; the base is the same
    assert source_facts(folder) == facts


def test_a_folder_of_the_other_file_alone_is_refused_by_its_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.safetensors").unlink()
    way_out = "hf download OWNER/NAME --local-dir FOLDER"
    command = ["import", str(folder), f"--workdir={tmp_path / 'run'}", "--tokenizer=bytes"]
    assert main(command) == 2
    text = capsys.readouterr().err
    assert (
        "got the names of Mistral's own program" in text
        and "consolidated.safetensors" in text
        and way_out in text
    )
    (folder / "config.json").rename(folder / "params.json")
    assert main(command) == 2
    text = capsys.readouterr().err
    assert f"got {folder / 'params.json'} of Mistral's own program" in text and way_out in text
    assert not (tmp_path / "run").exists()
