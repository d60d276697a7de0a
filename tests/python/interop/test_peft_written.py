"""Adapters that are written as folders of PEFT, loaded by peft."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from hf_models import make, transformers
from mudd_core.base.errors import UserError
from mudd_core.config import LoraConfig
from mudd_core.engine.lora import is_adapter, merged_tensors
from mudd_core.interop import export_original
from mudd_core.interop.peft_written import adapter_tensors
from mudd_core.run.build.base import Base
from mudd_core.tools.export_weights.adapter import adapted_model, base_tensors, write_adapter
from mudd_core.tools.export_weights.held_model import held_model
from mudd_core.tools.export_weights.probe import difference, probe_logits
from peft_cases import IDS, WARNINGS, Array, logits, near, peft, read, theirs
from reference import bounds

pytestmark = WARNINGS
# Type: targets, and the number of modules that PEFT finds for them.
TYPES = {
    "llama_tied": ("all", 14),
    "llama_biases": ("q,v,down", 6),
    "qwen2": ("blocks.1.attn.*,down", 6),
    "qwen3": ("all", 14),
    "mistral": ("k,o", 4),
    "gemma3": ("all", 14),
    "smollm3": ("all", 14),
    "phi3": ("all", 8),
    "olmo2": ("all", 14),
    "olmo3": ("q,blocks.1.attn.*,down", 7),
    "mixtral": ("all", 8),
    "qwen3_moe": ("all", 8),
    "gpt2": ("up,blocks.*.attn.o", 4),
    "gpt2_other": ("q,v,blocks.1.attn.k,down", 4),
    "gpt_neox": ("all", 8),
}


def adapted(name: str, folder: Path, lora: LoraConfig) -> mc.Model:
    """Return the model of a type, saved as the base in the folder, with adapters that change its logits."""
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


def adapter_difference(folder: Path, model: mc.Model) -> tuple[float, float]:
    """Compare a written adapter on a model's base with the model, by probe.difference."""
    base = base_tensors(model.store, model.parameters)
    again = adapted_model(folder, model.config, base)
    return difference(probe_logits(again), probe_logits(model))


def merged_model(model: mc.Model) -> mc.Model:
    return held_model(model.config, merged_tensors(model.parameters, model.store))


@pytest.mark.parametrize("name", TYPES)
def test_peft_loads_what_is_written(name: str, tmp_path: Path) -> None:
    targets, count = TYPES[name]
    model = adapted(name, tmp_path / "base", LoraConfig(rank=5, alpha=8.0, targets=targets, dropout=0.25))
    assert write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {}) == 2 * count
    assert adapter_difference(tmp_path / "out", model)[0] == 0.0
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (5, 8, 0.25)
    assert config.fan_in_fan_out == name.startswith("gpt2") and config.task_type == "CAUSAL_LM"
    assert sum(isinstance(one, peft.tuners.lora.LoraLayer) for one in loaded.modules()) == count
    assert near(logits(loaded), model.logits(IDS))
    merged = logits(loaded.merge_and_unload())
    assert near(merged_model(model).logits(IDS), merged)
    weights = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").state_dict()
    assert any(not np.array_equal(merged_w, weights[key].numpy()) for key, merged_w in written(model).items())
    # Finds the base by its name.
    again = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert near(logits(again), model.logits(IDS))


def written(model: mc.Model) -> dict[str, Array]:
    """Return the merged weights by the names of transformers."""
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


def test_one_rank_for_all_modules_is_refused_for_a_joint_matrix(tmp_path: Path) -> None:
    model = adapted("gpt2", tmp_path / "base", LoraConfig(rank=2, targets="all"))
    weights = {name: value for name, value in model.parameters.items() if is_adapter(name)}
    told = r"blocks.0.attn.q, which is a part of transformer.h.0.attn.c_attn there; add --merged to write"
    with pytest.raises(UserError, match=told):
        adapter_tensors(model.config, weights, has_patterns=False)


@pytest.mark.parametrize("targets", ["k", "q,v"])
@pytest.mark.parametrize("name", ["gpt2", "phi3", "gpt_neox"])
def test_adapters_before_training_are_read_back(name: str, targets: str, tmp_path: Path) -> None:
    """B is zero, so its rows do not show the layers."""
    make(name, tmp_path / "base")
    base = mc.load(tmp_path / "base").model
    model = mc.Model(base.config, lora=LoraConfig(rank=3, alpha=4.5, targets=targets), seed=1)
    for key, value in base.parameters.items():
        model.set_parameter(key, value)
    write_adapter(tmp_path / "theirs", model, "base", {})
    again = read(tmp_path)
    assert np.array_equal(again.logits(IDS), model.logits(IDS))
    assert near(logits(theirs(tmp_path / "base", tmp_path / "theirs")), model.logits(IDS))
