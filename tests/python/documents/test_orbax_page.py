"""The scripts in docs/orbax-to-safetensors.md convert the weights of original programs."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import make
from mudd_core import interop
from mudd_core.config import MUDDFormerConfig
from places import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")


PAGE = ROOT / "docs" / "orbax-to-safetensors.md"


def run_page(kind: str, words: list[Path], folder: Path, monkeypatch: Any) -> None:
    """Save the page's script of this kind to a file, and run it with these arguments."""
    (script,) = re.findall(rf"```python {kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert 15 <= script.count("\n") <= 24
    (folder / "script.py").write_text(script)
    monkeypatch.setattr("sys.argv", ["script.py", *map(str, words)])
    runpy.run_path(str(folder / "script.py"))


def test_the_page_converts_torch_files(tmp_path: Path, monkeypatch: Any) -> None:
    model = make("llama", tmp_path / "hf")
    torch.save({"module": model.state_dict()}, tmp_path / "state.pt")
    run_page("torch", [tmp_path / "out.safetensors", tmp_path / "state.pt"], tmp_path, monkeypatch)
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "out.safetensors")
    want = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    assert np.array_equal(ours.logits([1, 2, 3]), want.logits([1, 2, 3]))


def test_the_page_converts_orbax_folders(tmp_path: Path, monkeypatch: Any) -> None:
    """Run the page's scripts with a fake Orbax, which restores the tree of a training state."""
    plain = mc.Model(
        MUDDFormerConfig(vocab_size=31, max_seq_len=16, d_model=16, n_layer=2, n_head=2, d_ff=384), seed=1
    )
    settings, weights = interop.export_original("muddformer_jax", plain)
    tree: dict[str, Any] = {}
    for name, array in weights.items():
        *outer, last = name.split("/")
        node = tree
        for part in outer:
            node = node.setdefault(part, {})
        node[last] = array
    restored = {"step": np.array(3), "params": {"params": tree}, "opt_state": [1]}
    orbax = ModuleType("orbax")
    checkpoint = ModuleType("orbax.checkpoint")
    checkpoint.PyTreeCheckpointer = lambda: SimpleNamespace(restore=lambda folder: restored)  # type: ignore[attr-defined]
    orbax.checkpoint = checkpoint  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "orbax", orbax)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", checkpoint)
    run_page("orbax", [tmp_path / "state", tmp_path / "out.safetensors"], tmp_path, monkeypatch)
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    ours = interop.load_original("muddformer_jax", tmp_path / "settings.json", tmp_path / "out.safetensors")
    assert np.array_equal(ours.logits(np.array([[1, 2, 3]])), plain.logits(np.array([[1, 2, 3]])))
