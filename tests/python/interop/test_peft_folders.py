"""Folders of PEFT that are read and trained further, checked against peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mudd_core.engine.lora import is_adapter
from mudd_core.interop.peft_weights import TENSORS
from mudd_core.interop.peft_written import adapter_tensors
from mudd_core.tools.export_weights.adapter import write_adapter
from peft_cases import (
    IDS,
    JOINT,
    WARNINGS,
    from_peft,
    logits,
    loss_of,
    near,
    parameters_of,
    read,
    run_config,
    safetensors,
    theirs,
    updated,
)
from rank_runs import batch_of
from reference import bounds

pytestmark = WARNINGS
LISTS = {
    "llama_tied": ["q_proj", "v_proj", "down_proj"],
    "llama_biases": ["model.layers.1.self_attn.o_proj", "up_proj"],
    "qwen2": "all-linear",
    "gpt2": ["c_fc", "mlp.c_proj"],
    "mixtral_plain": ["k_proj", "o_proj"],
    "qwen3_moe": ["q_proj", "v_proj"],
}


@pytest.mark.parametrize("name", LISTS)
def test_folders_of_peft_are_read_and_written_back(name: str, tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, target_modules=LISTS[name], fan_in_fan_out=name == "gpt2")
    ours = read(tmp_path)
    assert ours.lora is not None and (ours.lora.rank, ours.lora.alpha) == (4, 6.0)
    assert ours.lora.targets.startswith("all") == (name == "qwen2")
    assert near(ours.logits(IDS), logits(model.eval()))
    write_adapter(tmp_path / "again", ours, "base", {})
    files = [safetensors.load_file(tmp_path / folder / TENSORS) for folder in ("theirs", "again")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(value, files[1][key]) for key, value in files[0].items())
    config = run_config(ours)
    batch = batch_of(config, 0)
    loss, gradients = ours.loss_and_gradients(batch)
    want = loss_of(model, batch)
    want.backward()
    assert abs(loss - want.item()) <= bounds.LOSS * want.item()
    theirs = adapter_tensors(ours.config, gradients)
    for key, value in parameters_of(model).items():
        far = np.abs(theirs[key] - value.grad.numpy()).max()
        assert far <= bounds.GRADIENT * max(np.abs(value.grad.numpy()).max(), 1e-3), (key, far)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama_tied", {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": True}),
        ("qwen3", {"target_modules": "all-linear", "r": 40}),  # above the width
    ],
)
def test_twenty_updates_are_those_of_peft(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, **settings)
    ours = read(tmp_path)
    weights = updated(model, ours, 20)
    trained = {name: value for name, value in ours.parameters.items() if is_adapter(name)}
    for key, value in adapter_tensors(ours.config, trained).items():
        want = weights[key].detach().numpy()
        # PyTorch computes in float32 too, with its sums in another order.
        assert np.linalg.norm(value - want) <= 5e-5 * np.linalg.norm(want), key


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_adapters_in_16_bits_are_read(kind: str, tmp_path: Path) -> None:
    model = from_peft("qwen3", tmp_path, target_modules=["q_proj"])
    weights = {name: value.detach().to(getattr(torch, kind)) for name, value in parameters_of(model).items()}
    safetensors.save_file(weights, tmp_path / "theirs" / TENSORS)
    ours = read(tmp_path)
    tensors = adapter_tensors(
        ours.config, {name: ours.parameters[name] for name in ours.parameters if is_adapter(name)}
    )
    assert all(np.array_equal(tensors[name], value.float().numpy()) for name, value in weights.items())


@pytest.mark.parametrize("name", JOINT)
def test_an_adapter_of_a_joint_matrix_is_read_as_one_of_each_layer(name: str, tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, target_modules=[JOINT[name]], fan_in_fan_out=name == "gpt2")
    ours = read(tmp_path)
    assert near(ours.logits(IDS), logits(model.eval()))
    write_adapter(tmp_path / "again", ours, "base", {})
    assert near(logits(theirs(tmp_path / "base", tmp_path / "again")), ours.logits(IDS))
