"""Interchange with Hugging Face: transformers' own random models, their logits, losses, gradients and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import MODELS, SHARED, V, make, transformers
from mudd_core import interop
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.interop import hf_settings

safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")


def batch(seed: int = 0, mask: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, (3, 12))
    labels = np.where(rng.random((3, 12)) < 0.2, -100, tokens)
    labels[0, 3] = -100
    out = {"tokens": tokens, "labels": labels, "attention_mask": np.ones((3, 12), np.int64)}
    if mask:
        out["attention_mask"][1, 9:] = 0
        out["labels"][1, 9:] = -100
    return out


def theirs(model: Any, data: dict[str, Any]) -> Any:
    given = {k: torch.tensor(v) for k, v in data.items()}
    return model(input_ids=given["tokens"], labels=given["labels"], attention_mask=given["attention_mask"])


def close(got: Any, want: Any, name: str, scale: float = 3e-5) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape, name
    assert np.abs(got - want).max() <= scale * max(1e-3, np.abs(want).max()), name


@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradients_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = make(name, tmp_path / "hf", **({"max_shard_size": "8KB"} if name == "mixtral" else {}))
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists() == (name == "mixtral")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    data = batch()
    out = theirs(model, data)
    seen = data["attention_mask"].astype(bool)
    close(ours.logits(data)[seen], out.logits.detach().numpy()[seen], "logits")
    loss, gradients = ours.loss_and_gradients(data)
    # PyTorch computes in float32 too, with its sums in another order.
    assert loss == pytest.approx(out.loss.item(), abs=5e-6) and loss == pytest.approx(
        ours.loss(data), abs=5e-6
    )
    out.loss.backward()
    stored = interop.export_original("hf", ours)[1]
    assert set(gradients) == set(stored) and all(gradients[k].shape == v.shape for k, v in stored.items())
    want = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
    if MODELS[name][0] in (
        "Mixtral",
        "Qwen3Moe",
    ):  # transformers fuses tensors in memory that the files store separately
        fused = {k: p.detach().numpy() for k, p in model.named_parameters()}
        gradients = interop.load_original("hf", model.config.to_dict(), fused).loss_and_gradients(data)[1]
        assert set(gradients) == set(want)
    if name == "gpt_neox":  # the name in files
        gradients["lm_head.weight"] = gradients["embed_out.weight"]
    for key, gradient in want.items():
        close(gradients[key], gradient, key, 1e-4)


def test_three_steps_are_those_of_torch(tmp_path: Path) -> None:
    model = make("mixtral", tmp_path / "hf")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    cfg = Config(
        train=TrainConfig(steps=5, batch_size=3, seq_len=12),
        optim=OptimConfig(lr=1e-3, schedule="constant", decay="no_norm_no_bias"),
    )
    trainer = mc.Trainer(cfg, model=ours)
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() > 1) == big], "weight_decay": 0.1 * big}
        for big in (1, 0)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for step in range(3):
        data = batch(step, mask=step == 1)
        optimizer.zero_grad()
        loss = theirs(model, data).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        # PyTorch computes in float32 too, with its sums in another order.
        assert trainer.step(data).loss == pytest.approx(loss.item(), abs=2e-5)
    model.save_pretrained(tmp_path / "after")
    after = interop.load_original("hf", tmp_path / "after", tmp_path / "after").parameters
    for key, view in ours.parameters.items():
        # PyTorch computes in float32 too, with its sums in another order.
        assert np.abs(view - after[key]).max() <= 5e-5, key


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = make(name, tmp_path / "hf")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    prompt = batch()["tokens"][:1, :7]
    want = model.generate(torch.tensor(prompt), max_new_tokens=10, do_sample=False)[0, 7:]
    assert list(ours.generate(prompt[0], max_tokens=10)) == want.tolist()


def test_spellings_of_gpt2(tmp_path: Path) -> None:
    make("gpt2", tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    plain = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    weights = plain.original_weights()
    assert all(name.startswith("transformer.") for name in weights)
    old = {name.removeprefix("transformer."): array for name, array in weights.items()}
    old |= {
        "h.0.attn.bias": np.ones((1, 1, 32, 32)),
        "h.1.attn.masked_bias": np.array(-1e4),
    }  # buffers in files on the hub
    with pytest.warns(UserWarning, match=r"left out \(2\): h\.\*\.attn\.bias, h\.\*\.attn\.masked_bias"):
        bare = interop.load_original("hf", settings, {**old, "lm_head.weight": old["wte.weight"]})
    assert np.array_equal(bare.logits([1, 2, 3]), plain.logits([1, 2, 3]))
    assert set(bare.original_weights()) == {*old, "lm_head.weight"} - {
        "h.0.attn.bias",
        "h.1.attn.masked_bias",
    }
    with pytest.raises(ValueError, match="tied"):
        interop.load_original("hf", settings, {**weights, "lm_head.weight": old["wte.weight"] + 1})


@pytest.mark.parametrize("name", ["qwen3", "mixtral"])
def test_names_without_a_prefix(name: str, tmp_path: Path) -> None:
    """Files as saved from the model without a head."""
    make(name, tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    plain = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    weights = plain.original_weights()
    bare_weights = {key.removeprefix("model."): array for key, array in weights.items()}
    bare = interop.load_original("hf", settings, bare_weights)
    assert np.array_equal(bare.logits([1, 2, 3]), plain.logits([1, 2, 3]))
    assert set(bare.original_weights()) == set(bare_weights)
    with pytest.raises(
        ValueError, match=r"expected names that start like 'model\.layers\.0\.', got 'vision\."
    ):
        interop.load_original("hf", settings, {f"vision.{key}": array for key, array in weights.items()})


def test_settings_are_refused_before_the_weights_are_opened(tmp_path: Path) -> None:
    """NumPy has no 8-bit floats, so such weights are refused by their settings."""
    make("llama", tmp_path / "hf")
    weights = {"model.layers.0.self_attn.q_proj.weight": torch.zeros(16, 16).to(torch.float8_e4m3fn)}
    safetensors.save_file(weights, tmp_path / "hf" / "model.safetensors")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": "fp8"}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"quantization_config: expected no value, got .*'fp8'"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "falcon"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "q_proj.bias. is missing"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_scaling.rope_type"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rope_parameters"),
        ({"model_type": "mixtral", "sliding_window": 8}, "sliding_window"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
    ],
)
def test_settings_that_we_do_not_compute_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    make("llama", tmp_path / "hf")
    settings = {**json.loads((tmp_path / "hf" / "config.json").read_text()), **change}
    with pytest.raises(ValueError, match=words):
        interop.load_original("hf", settings, tmp_path / "hf")


def test_old_and_new_config_files_say_the_same() -> None:
    new = {**SHARED, "model_type": "mixtral", "rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}
    old = {**SHARED, "model_type": "mixtral", "rope_theta": 7e4, "torch_dtype": "bfloat16", "head_dim": None}
    config = hf_settings.model_config(new)
    assert config == hf_settings.model_config(old)
    assert config.rope_base == 7e4 and config.aux_coef == 0 and config.d_head == 0
    back = hf_settings.original_config(config)
    again = hf_settings.model_config(back)
    assert again.d_model == config.d_model and again.n_expert == config.n_expert and again.rope_base == 7e4


def test_folders_with_something_missing(tmp_path: Path) -> None:
    make("mixtral", tmp_path / "hf", max_shard_size="8KB")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    first = sorted((tmp_path / "hf").glob("model-*.safetensors"))[0]
    first.rename(tmp_path / "gone")
    with pytest.raises(UserError, match="that is not in"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    index.write_text("{}")
    with pytest.raises(FormatError, match="not an index"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    (tmp_path / "pickled.bin").write_bytes(b"")
    with pytest.raises(UserError, match="pickle"):
        interop.load_original("hf", tmp_path / "hf", tmp_path / "pickled.bin")


def test_absent_settings_take_the_defaults_of_transformers() -> None:
    for kind, name in (("llama", "LlamaConfig"), ("mixtral", "MixtralConfig"), ("gpt2", "GPT2Config")):
        whole = getattr(transformers, name)().to_dict()
        whole["head_dim"] = None  # transformers derives the missing settings
        assert hf_settings.model_config({"model_type": kind}) == hf_settings.model_config(whole), kind
