"""`launch.py import` of a Hugging Face folder holds one tensor at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from places import ROOT

safetensors = pytest.importorskip("safetensors.numpy")

D, F, V = 512, 1024, 2048
# Run a command, then print the peak of its resident memory in MiB.
METER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(code)
"""


def write_llama(folder: Path, layers: int) -> float:
    """Write a model with random fp32 weights. Return the MiB of its file."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    for layer in range(layers):
        part = f"model.layers.{layer}"
        shapes |= {f"{part}.self_attn.{name}_proj.weight": (D, D) for name in "qkvo"}
        shapes |= {f"{part}.mlp.{name}_proj.weight": (F, D) for name in ("gate", "up")}
        shapes |= {f"{part}.{name}_layernorm.weight": (D,) for name in ("input", "post_attention")}
        shapes[f"{part}.mlp.down_proj.weight"] = (D, F)
    rng = np.random.default_rng(0)
    folder.mkdir()
    safetensors.save_file(
        {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()},
        folder / "model.safetensors",
    )
    settings = {
        "model_type": "llama",
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": F,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return (folder / "model.safetensors").stat().st_size / 2**20


def peak_mib(folder: Path) -> float:
    """Return the peak resident memory of an import of the folder."""
    words = ("import", str(folder), f"--workdir={folder}-run", "--tokenizer=bytes")
    command = [sys.executable, "-S", "-c", METER, sys.executable, str(ROOT / "launch.py"), *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_more_layers_need_no_more_memory(tmp_path: Path) -> None:
    sizes = [write_llama(tmp_path / str(layers), layers) for layers in (1, 9)]
    peaks = [peak_mib(tmp_path / str(layers)) for layers in (1, 9)]
    # 80 MiB of further matrices; the largest tensor has 4 MiB.
    assert sizes[1] - sizes[0] > 79
    assert peaks[1] - peaks[0] < 16
