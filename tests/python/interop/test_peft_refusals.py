"""Folders of PEFT that are refused: other settings, other bases, damage, experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mudd_core as mc
from hf_models import make
from mudd_core.base.errors import FormatError, UserError
from mudd_core.interop.peft_folder import read_adapter
from mudd_core.interop.peft_weights import SETTINGS, TENSORS
from peft_cases import JOINT, WARNINGS, from_peft, read, safetensors

pytestmark = WARNINGS


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"use_rslora": True}, "use_rslora: expected none, as adapters are computed here, got True"),
        ({"use_dora": True}, "use_dora: expected none"),
        ({"bias": "lora_only"}, "bias: expected 'none', .*got 'lora_only'"),
        ({"peft_type": "IA3"}, "peft_type: expected 'LORA'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: .*got 'pissa'; save_pretrained"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern: expected none"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save: expected none, .*got \['lm_head'\]"),
        ({"of_a_later_peft": 3}, "of_a_later_peft: expected none, .*got 3"),
        ({"r": 5}, "expected rank 5"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"lora_alpha": float("inf")}, "lora_alpha': inf"),
        ({"lora_dropout": -0.5}, "lora_dropout': -0.5"),
    ],
)
def test_settings_that_are_not_computed_are_refused(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    from_peft("llama_tied", tmp_path, target_modules=["q_proj"])
    file = tmp_path / "theirs" / SETTINGS
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    damaged = not changed.keys().isdisjoint({"r", "lora_alpha", "lora_dropout"})
    with pytest.raises(FormatError if damaged else UserError, match=told):
        read(tmp_path)


def test_adapters_of_another_base_and_damaged_files_are_refused(tmp_path: Path) -> None:
    from_peft("llama_tied", tmp_path, target_modules=["q_proj", "v_proj"])
    others = {"llama_biases": "q has 16 outputs|has 24 outputs", "gpt2": "is no linear layer of the base"}
    for name, told in others.items():
        make(name, tmp_path / name)
        config = mc.load(tmp_path / name).model.config
        with pytest.raises(UserError, match=told):
            read_adapter(tmp_path / "theirs", config, "[tune] --adapter")
    file = tmp_path / "theirs" / TENSORS
    weights = safetensors.load_file(file)
    first = next(iter(weights))
    for changed, error, told in (
        ({first: None}, FormatError, "one of its two tensors"),
        ({"base_model.model.lm_head.lora_magnitude_vector": torch.ones(3)}, UserError, "is of no adapter"),
        ({first: torch.full_like(weights[first], float("nan"))}, FormatError, "expected finite numbers"),
    ):
        made = {name: value for name, value in {**weights, **changed}.items() if value is not None}
        safetensors.save_file(made, file)
        with pytest.raises(error, match=told):
            read(tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FormatError):
        read(tmp_path)
    file.rename(file.with_name("adapter_model.bin"))
    with pytest.raises(UserError, match="is a pickle"):
        read(tmp_path)
    with pytest.raises(UserError, match="expected a folder of PEFT"):
        read_adapter(tmp_path / "base", mc.load(tmp_path / "base").model.config, "[tune] --adapter")


def test_a_joint_matrix_with_a_higher_rank_than_its_layers_is_refused(tmp_path: Path) -> None:
    joint = JOINT["gpt2"]
    from_peft(
        "gpt2",
        tmp_path,
        target_modules=[joint],
        fan_in_fan_out=True,
        rank_pattern={f"transformer.h.{n}.attn.{joint}": 8 for n in range(2)},
        alpha_pattern={f"transformer.h.{n}.attn.{joint}": 12 for n in range(2)},
    )
    with pytest.raises(
        UserError, match=r"c_attn' is 3 layers here \(blocks.0.attn.q, .*of rank 4; merge .*--base"
    ):
        read(tmp_path)
    file = tmp_path / "theirs" / SETTINGS
    settings = {**json.loads(file.read_text()), "alpha_pattern": {}}
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"rank_pattern: expected none, as adapters are computed here, got "):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("mixtral_plain", "block_sparse_moe.experts.0.w1"),
        ("mixtral_plain", "block_sparse_moe.gate"),
        ("qwen3_moe", "mlp.experts.0.up_proj"),
        ("qwen3_moe", "mlp.gate"),
    ],
)
def test_adapters_of_experts_and_routers_are_refused(name: str, module: str, tmp_path: Path) -> None:
    """PEFT wrote such adapters with version 4 of transformers, which has a layer for each expert and router."""
    from_peft(name, tmp_path, target_modules=["q_proj"])
    file = tmp_path / "theirs" / TENSORS
    start = f"base_model.model.model.layers.0.{module}"
    factors = {f"{start}.lora_A.weight": torch.ones(4, 16), f"{start}.lora_B.weight": torch.ones(24, 4)}
    safetensors.save_file({**safetensors.load_file(file), **factors}, file)
    with pytest.raises(
        UserError, match=f"{module}' is of a router, or of one expert as in transformers 4; .*--base"
    ):
        read(tmp_path)
