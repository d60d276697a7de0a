"""Gemma 3: config files of the hub, folders with a model for images, gains near 0, sampling past its windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import SHARED, make, transformers
from mudd_core import interop
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.interop.hf_settings import model_config, original_config

safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")

LAYERS = 7
# The names in config.json of gemma-3-1b-it and gemma-3-270m, which transformers 4 wrote.
OLD = {
    "model_type": "gemma3_text",
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": None,
    "head_dim": 8,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 8,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 700.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 5000.0,
    "sliding_window": 5,
    "sliding_window_pattern": 3,
    "torch_dtype": "bfloat16",
    "vocab_size": 300,
}


def test_config_files_of_the_hub() -> None:
    ours = model_config(OLD)
    assert ours == model_config(transformers.Gemma3TextConfig(**OLD).to_dict())
    assert (ours.sliding_layers, ours.sliding_window) == ("0-1,3-4,6", 5)
    assert (ours.rope_base, ours.rope_local_base, ours.rope_factor) == (5000.0, 700.0, 8.0)
    assert ours.tie_embeddings and ours.settled().query_pre_attn_scalar == 0
    again = transformers.Gemma3TextConfig(**original_config(ours))
    assert model_config(again.to_dict()) == ours
    by_name = {**OLD, "layer_types": ["full_attention"] * LAYERS, "_sliding_window_pattern": 3}
    assert model_config(by_name).settled().rope_local_base == 0  # no layer has a window


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"final_logit_softcapping": 30.0},
            "final_logit_softcapping: expected no value, got 30.0; .* write null into",
        ),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: expected no value, got 50.0"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention: expected False, got True"),
        ({"sliding_window": None}, "sliding_window: expected a number of keys"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected 7 of sliding_attention"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters: expected an object with",
        ),
        (
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_parameters.sliding_attention.rope_type: expected default, got 'linear'",
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling.rope_type.*got 'yarn'"),
    ],
)
def test_settings_that_we_do_not_compute(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        model_config({**OLD, **change})


def with_images(folder: Path) -> Any:
    """Save a model for text and images, with names as on the hub, and return it."""
    torch.manual_seed(2)
    text = {name: value for name, value in OLD.items() if name not in ("torch_dtype", "cache_implementation")}
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Gemma3Config(
        text_config={**text, "vocab_size": 300},
        vision_config={"model_type": "siglip_vision_model", **vision, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=1,
        image_token_index=299,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = transformers.Gemma3ForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    return model


def test_the_language_model_of_a_folder_with_images(tmp_path: Path, capsys: Any) -> None:
    model = with_images(tmp_path / "hf")
    ids = np.arange(40).reshape(2, 20) * 7 % 290
    want = model(torch.tensor(ids)).logits.detach().numpy()
    with pytest.warns(UserWarning, match=r"left out \(\d+\): .*vision_tower"):
        ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(ours.logits(ids) - want).max() <= 1e-5 * np.abs(want).max()
    run, out = f"--workdir={tmp_path / 'run'}", tmp_path / "out"
    assert main(["import", str(tmp_path / "hf"), run, "--tokenizer=bytes"]) == 0
    assert "multi_modal_projector" in capsys.readouterr().err
    assert main(["export", run, f"--to={out}"]) == 0
    again = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert again.config.model_type == "gemma3_text"
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(again(torch.tensor(ids)).logits.detach().numpy() - want).max() <= 1e-5 * np.abs(want).max()
    weights = safetensors.load_file(tmp_path / "hf" / "model.safetensors")
    gone = next(name for name in weights if name.endswith("language_model.model.layers.6.mlp.up_proj.weight"))
    safetensors.save_file(
        {k: v for k, v in weights.items() if k != gone}, tmp_path / "hf" / "model.safetensors"
    )
    with pytest.raises(UserError, match=r"'model\.layers\.6\.mlp\.up_proj\.weight' is missing"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    with pytest.raises(UserError, match="gpt_neox, mixtral, qwen3_moe, gemma3, got 'gemma2'"):
        interop.load_original("hf", {**settings, "model_type": "gemma2"}, tmp_path / "hf")
    with pytest.raises(UserError, match="text_config: expected the settings of the language model"):
        interop.load_original("hf", {**settings, "text_config": None}, tmp_path / "hf")


def test_small_gains_are_written_back_byte_for_byte(tmp_path: Path) -> None:
    """1 + w in float32 would lose the last bits of these gains."""
    model = make("gemma3", tmp_path / "hf")
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.copy_(torch.tensor(rng.normal(size=p.shape[0]) * 10.0 ** rng.integers(-12, 1, p.shape[0])))
    model.save_pretrained(tmp_path / "hf")
    run = f"--workdir={tmp_path / 'run'}"
    assert main(["import", str(tmp_path / "hf"), run, "--tokenizer=bytes"]) == 0
    assert main(["export", run, f"--to={tmp_path / 'out'}"]) == 0
    first, second = (safetensors.load_file(tmp_path / name / "model.safetensors") for name in ("hf", "out"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_from_the_start_is_the_model_of_transformers(tmp_path: Path) -> None:
    """The initial gains of 1 are stored as 0, and the export needs no imported files."""
    model = mc.Model(model_config({**SHARED, "model_type": "gemma3_text", "head_dim": 8}))
    assert not np.any(model.parameters["blocks.0.attn.post_norm.gain"])
    settings, weights = interop.export_original("hf", model)
    assert settings["model_type"] == "gemma3_text"
    theirs = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**settings)).eval()
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()}, strict=False)
    ids = np.arange(30)[None] * 7 % 257
    want = theirs(torch.tensor(ids)).logits.detach().numpy()
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(model.logits(ids) - want).max() <= 1e-5 * np.abs(want).max()
