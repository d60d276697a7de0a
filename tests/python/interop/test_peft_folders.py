"""Adapters as folders of PEFT, written and read, with peft itself as the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import V, make, transformers
from mudd_core.base.errors import UserError
from mudd_core.config import LoraConfig
from mudd_core.interop import export_original
from mudd_core.interop.export_adapter import adapter_difference, write_adapter
from mudd_core.interop.merged import merged_model
from mudd_core.run.build.base import Base
from reference import bounds

peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core"),
    pytest.mark.filterwarnings(
        "ignore:.*is_gradient_checkpointing.*:FutureWarning"
    ),  # peft calls transformers so
]

Array = np.ndarray[Any, np.dtype[Any]]
IDS = np.arange(40).reshape(2, 20) * 7 % V
# Type: targets, and what PEFT finds of them.
TYPES = {
    "llama_tied": ("all", 14),
    "llama_biases": ("q,v,down", 6),
    "qwen2": ("blocks.1.attn.*,down", 6),
    "qwen3": ("all", 14),
    "mistral": ("k,o", 4),
    "mixtral": ("all", 8),
    "gpt2": ("up,blocks.*.attn.o", 4),
}


def adapted(name: str, folder: Path, lora: LoraConfig) -> mc.Model:
    """The model of a type, saved as the base in the folder, with adapters that change its logits."""
    make(name, folder)
    base = mc.load(folder).model
    model = mc.Model(base.config, lora=lora, seed=1)
    model.normalize = base.normalize
    whole = {key: np.array(value) for key, value in base.parameters.items()}
    for key, value in whole.items():
        model.set_parameter(key, value)
    layers = model.store.adapters.names
    kept = {f"{layer}.w": whole[f"{layer}.w"] for layer in layers} if lora.init == "pissa" else {}
    Base(folder, "", 0, kept).settle(model, fresh=True)
    rng = np.random.default_rng(2)
    for layer in sorted(layers):
        for factor in "ab":
            key = f"{layer}.lora_{factor}"
            old = model.parameters[key]
            model.set_parameter(key, old + rng.normal(size=old.shape).astype(np.float32) * 0.1)
    return model


def theirs(base: Path, adapter: Path) -> Any:
    """The base with the adapter, as PEFT loads both."""
    whole = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    return peft.PeftModel.from_pretrained(whole, adapter).eval()


def logits(model: Any) -> Array:
    with torch.no_grad():
        found: Array = model(torch.tensor(IDS)).logits.numpy()
    return found


def near(got: Array, want: Array, widened: float = 1.0) -> bool:
    return bool(np.abs(got - want).max() <= widened * bounds.LOGITS * np.abs(want).max())


@pytest.mark.parametrize("name", TYPES)
def test_peft_loads_what_is_written(name: str, tmp_path: Path) -> None:
    targets, count = TYPES[name]
    model = adapted(name, tmp_path / "base", LoraConfig(rank=5, alpha=8.0, targets=targets, dropout=0.25))
    assert write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {}) == 2 * count
    assert adapter_difference(tmp_path / "out", model)[0] == 0.0
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (5, 8, 0.25)
    assert config.fan_in_fan_out == (name == "gpt2") and config.task_type == "CAUSAL_LM"
    assert sum(isinstance(one, peft.tuners.lora.LoraLayer) for one in loaded.modules()) == count
    assert near(logits(loaded), model.logits(IDS))
    merged = logits(loaded.merge_and_unload())
    assert near(merged_model(model).logits(IDS), merged)
    weights = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").state_dict()
    assert any(not np.array_equal(merged_w, weights[key].numpy()) for key, merged_w in written(model).items())
    again = peft.AutoPeftModelForCausalLM.from_pretrained(
        tmp_path / "out"
    ).eval()  # finds the base by its name
    assert near(logits(again), model.logits(IDS))


def written(model: mc.Model) -> dict[str, Array]:
    """The merged weights by the names of transformers."""
    return export_original("hf", merged_model(model))[1]


def test_pissa_becomes_an_adapter_of_the_base_as_it_was(tmp_path: Path) -> None:
    lora = LoraConfig(rank=3, alpha=6.0, init="pissa")
    model = adapted("qwen3", tmp_path / "base", lora)
    assert write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {}) == 28
    far, largest = adapter_difference(tmp_path / "out", model)
    assert far <= bounds.LOGITS * largest
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.init_lora_weights) == (6, 12, True)
    assert near(logits(loaded), model.logits(IDS)) and near(merged_model(model).logits(IDS), logits(loaded))


def test_a_rank_above_the_width(tmp_path: Path) -> None:
    model = adapted("llama_tied", tmp_path / "base", LoraConfig(rank=40, alpha=13.5, targets="q,up"))
    write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {})
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    assert loaded.peft_config["default"].lora_alpha == 13.5 and near(logits(loaded), model.logits(IDS))


@pytest.mark.parametrize(
    ("name", "targets", "told"),
    [
        (
            "gpt2",
            "all",
            r"blocks.0.attn.k, which is a part of transformer.h.0.attn.c_attn .*; --merged writes",
        ),
    ],
)
def test_what_peft_cannot_have_is_refused(name: str, targets: str, told: str, tmp_path: Path) -> None:
    model = adapted(name, tmp_path / "base", LoraConfig(rank=2, targets=targets))
    with pytest.raises(UserError, match=told):
        write_adapter(tmp_path / "out", model, "base", {})
    assert not (tmp_path / "out").exists()
