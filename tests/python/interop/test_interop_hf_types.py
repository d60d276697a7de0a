"""Each supported type with settings drawn from its config class, against transformers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_float64 import require_near
from hf_models import NO_DROPOUT, layered, transformers
from mudd_core import interop
from mudd_core.checkpoint.weights_folder import write_folder
from test_interop_hf import close, theirs

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
ROTARY = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
# The draws of a type depend on its place here, so append new ones.
TITLES = {
    **ROTARY,
    "gpt2": "GPT2",
    "mixtral": "Mixtral",
    "gemma3_text": "Gemma3Text",
    "smollm3": "SmolLM3",
    "olmo2": "Olmo2",
    "olmo3": "Olmo3",
    "phi3": "Phi3",
    "gpt_neox": "GPTNeoX",
    "qwen3_moe": "Qwen3Moe",
}
MIXTURES = ("mixtral", "qwen3_moe")
DRAWS = 12
TYPES = ("float32", "bfloat16", "float16")
T = 24
# The bits of PyTorch's grouped matmul depend on the addresses of its operands.
IMPLEMENTATIONS = {"attn_implementation": "eager", "experts_implementation": "eager"}


def drawn(kind: str, number: int) -> dict[str, Any]:
    """Return settings number `number` of a type: sizes, and each option enabled in some of them."""
    rng = np.random.default_rng([list(TITLES).index(kind), number])

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    if kind == "gpt2":
        return of_gpt2(pick)
    if kind == "gpt_neox":
        return of_neox(pick)
    heads, layers = pick(2, 4, 6), pick(1, 2, 3, 4)
    settings: dict[str, Any] = {
        "vocab_size": pick(61, 130, 257),
        "hidden_size": heads * pick(4, 6, 8),
        "intermediate_size": pick(16, 24, 40),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": pick(1, 2, heads),
        "max_position_embeddings": pick(32, 48),
        "rms_norm_eps": pick(1e-6, 1e-5),
        "tie_word_embeddings": pick(False, True),
        "rope_parameters": rope(pick),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if (width := pick(None, 4, 10, 16)) is not None:
        settings["head_dim"] = width
    if kind == "llama":
        settings |= {"attention_bias": pick(False, True), "mlp_bias": pick(False, True)}
    if kind == "mistral":
        settings["sliding_window"] = pick(None, 1, 3, 9, 32, 4096)
    if kind in ("qwen2", "qwen3") and number % 3:
        settings |= {"use_sliding_window": True, "sliding_window": pick(1, 2, 7, 20)}
        if number % 3 == 1:
            names = ("full_attention", "sliding_attention")
            settings["layer_types"] = [pick(*names) for _ in range(layers)]
        else:
            settings["max_window_layers"] = pick(0, 1, layers)
    if kind == "qwen3":
        settings["attention_bias"] = pick(False, True)
    if kind in MIXTURES:
        settings |= {"num_local_experts": pick(2, 4, 5), "num_experts_per_tok": pick(1, 2)}
        settings |= {"output_router_logits": pick(False, True), "router_aux_loss_coef": pick(0.02, 0.3)}
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": pick(1e4, 500.0, 1e6)}
    if kind == "qwen3_moe":
        settings |= {"norm_topk_prob": True, "moe_intermediate_size": pick(8, 20, 28)}
    if kind.startswith("olmo"):
        settings["attention_bias"] = pick(False, True)
    if kind == "olmo3":
        settings |= {
            "sliding_window": pick(1, 2, 7, 20),
            "rope_parameters": layered(rope(pick), pick(500.0, 1e4)),
            **({"layer_types": types(pick, layers)} if number % 3 else {}),
        }
    if kind == "phi3":
        settings |= {"head_dim": pick(4, 8, 16), "sliding_window": pick(None, 1, 3, 9, 32)}
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": pick(1e4, 500.0)}
        settings["partial_rotary_factor"] = pick(1.0, 0.5, 1.0, 0.75 if settings["head_dim"] > 4 else 0.5)
    if kind == "smollm3":
        settings |= of_smollm3(pick, number, layers)
    if kind == "gemma3_text":
        settings |= of_gemma3(pick, number, layers)
    return settings


def types(pick: Any, layers: int) -> list[str]:
    return [pick("full_attention", "sliding_attention") for _ in range(layers)]


def of_smollm3(pick: Any, number: int, layers: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"attention_bias": pick(False, True), "mlp_bias": pick(False, True)}
    if number % 3:
        settings |= {"use_sliding_window": True, "sliding_window": pick(1, 2, 7, 20)}
    if number % 3 == 1:
        settings["layer_types"] = types(pick, layers)
    if number % 2:
        return settings | {"no_rope_layers": [pick(0, 1) for _ in range(layers)]}
    return settings | {"no_rope_layer_interval": pick(1, 2, 4)}


def of_gemma3(pick: Any, number: int, layers: int) -> dict[str, Any]:
    settings = {
        "attention_bias": pick(False, True),
        "hidden_activation": pick("gelu_pytorch_tanh", "gelu", "silu"),
        "query_pre_attn_scalar": pick(4, 7, 256),
        "sliding_window": pick(1, 2, 7, 20),
        "rope_parameters": layered(rope(pick), pick(500.0, 1e4)),
    }
    return settings | ({"layer_types": types(pick, layers)} if number % 3 else {})


def of_gpt2(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 4)
    return {
        "vocab_size": pick(61, 130, 257),
        "n_embd": heads * pick(4, 6, 8),
        "n_layer": pick(1, 2, 3, 4),
        "n_head": heads,
        "n_inner": pick(None, 16, 40),
        "n_positions": pick(32, 48),
        "activation_function": pick("gelu_new", "gelu", "relu", "silu"),
        "scale_attn_weights": pick(True, False),
        "scale_attn_by_inverse_layer_idx": pick(False, True),
        "layer_norm_epsilon": pick(1e-5, 1e-6),
        "tie_word_embeddings": pick(True, False),
        "bos_token_id": None,
        "eos_token_id": None,
        **NO_DROPOUT,
    }


def of_neox(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 4)
    return {
        "vocab_size": pick(61, 130, 257),
        "hidden_size": heads * pick(8, 16),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "intermediate_size": pick(16, 40),
        "max_position_embeddings": pick(32, 48),
        "hidden_act": pick("gelu", "gelu_new", "relu", "silu"),
        "layer_norm_eps": pick(1e-5, 1e-6),
        "rotary_pct": pick(0.25, 0.5, 1.0),
        "rotary_emb_base": pick(10000, 500),
        "use_parallel_residual": pick(True, True, False),
        "attention_bias": pick(True, True, False),
        "tie_word_embeddings": pick(True, False),
        "bos_token_id": None,
        "eos_token_id": None,
    }


def rope(pick: Any) -> dict[str, Any]:
    """Return rotary parameters of one of the supported kinds."""
    base = {"rope_theta": pick(1e4, 500.0, 1e6)}
    kind = pick("default", "linear", "llama3")
    if kind == "linear":
        return {**base, "rope_type": kind, "factor": pick(2.0, 3.5)}
    if kind == "llama3":
        own = {
            "factor": pick(8.0, 32.0),
            "low_freq_factor": pick(1.0, 0.5),
            "high_freq_factor": pick(4.0, 2.0),
        }
        return {**base, "rope_type": kind, **own, "original_max_position_embeddings": pick(8, 16, 64)}
    return {**base, "rope_type": kind}


def made(kind: str, number: int, folder: Path) -> Any:
    """Return a random model of transformers, saved in one of the dtypes, in one file or several."""
    torch.manual_seed(number)
    stored = getattr(torch, TYPES[number % 3])
    config = getattr(transformers, f"{TITLES[kind]}Config")(**drawn(kind, number))
    model = transformers.AutoModelForCausalLM.from_config(config, **IMPLEMENTATIONS)
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean = 1.0 if p.dim() == 1 and "bias" not in name else 0.0
            # The gains of Gemma are distances from 1. Its norms amplify the rounding of rotary angles.
            p.normal_(*((0.0, 0.1) if kind == "gemma3_text" else (mean, 0.2)))
            p.copy_(p.to(stored).float())
    shards = {"max_shard_size": "4KB" if kind in ROTARY or kind in MIXTURES else "1KB"} if number % 2 else {}
    copy.deepcopy(model).to(stored).save_pretrained(folder, **shards)
    assert (folder / "model.safetensors.index.json").exists() == bool(number % 2)
    return model.eval()


def batch(vocab: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, vocab, (2, T))
    mask = np.ones((2, T), np.int64)
    mask[1, T - 5 :] = 0
    return {"tokens": tokens, "labels": np.where(mask == 0, -100, tokens), "attention_mask": mask}


def exact_logits(model: Any, data: dict[str, Any], single: Any) -> Any:
    """Return transformers' logits in float64, in float32 if its attention windows make NaN of float64.

    On one CPU the float32 logits of transformers differ from float64 by 4.8e-5 of the largest one for Gemma 3, and
    mudd_core's by 0.7e-5.
    """
    with torch.no_grad():
        double = theirs(copy.deepcopy(model).double(), data).logits.numpy()
    return np.where(np.isfinite(double), double, single.logits.detach().numpy())


@pytest.mark.parametrize("number", range(DRAWS))
@pytest.mark.parametrize("kind", TITLES)
def test_drawn_settings_compute_what_transformers_computes(kind: str, number: int, tmp_path: Path) -> None:
    model = made(kind, number, tmp_path / "hf")
    ours = interop.load_original("hf", tmp_path / "hf", tmp_path / "hf")
    data = batch(ours.config.vocab_size)
    out = theirs(model, data)
    seen = data["attention_mask"].astype(bool)
    close(ours.logits(data)[seen], exact_logits(model, data, out)[seen], "logits")
    loss, gradients = ours.loss_and_gradients(data)
    # PyTorch computes in float32 too, with its sums in another order.
    assert loss == pytest.approx(out.loss.item(), abs=1e-5)
    out.loss.backward()
    want = {k: p.grad.numpy() for k, p in model.named_parameters()}
    if kind in MIXTURES:  # transformers fuses tensors in memory that the files store separately
        fused = {k: p.detach().numpy() for k, p in model.named_parameters()}
        gradients = interop.load_original("hf", model.config.to_dict(), fused).loss_and_gradients(data)[1]
    if "embed_out.weight" in gradients:  # the name in files of gpt_neox
        gradients["lm_head.weight"] = gradients["embed_out.weight"]
    assert set(want) <= set(gradients)
    # Without norms of keys, zero in exact arithmetic except for rotations.
    flat = [key for key in want if key.endswith("k_proj.bias") and not ours.config.qk_norm]
    for key in flat:
        # PyTorch computes in float32 too, with its sums in another order.
        assert np.abs(gradients[key] - want[key]).max() <= 2e-5
    require_near(model, data, gradients, [key for key in want if key not in flat])
    greedy(model, ours, data["tokens"][:1, :5])
    written_back(kind, ours, model, data["tokens"], tmp_path)


def greedy(model: Any, ours: Any, prompt: Any) -> None:
    """Check that decoding beyond every attention window returns transformers' tokens."""
    count = ours.config.max_seq_len - prompt.shape[1]
    # Without a cache, because transformers' cache keeps all keys of an attention window of 1.
    want = model.generate(torch.tensor(prompt), max_new_tokens=count, do_sample=False, use_cache=False)
    assert list(ours.generate(prompt[0], max_tokens=count)) == want[0, prompt.shape[1] :].tolist()


def written_back(kind: str, ours: Any, model: Any, tokens: Any, folder: Path) -> None:
    """Check that transformers loads the weights back as the same type, with and without their original settings."""
    plain = mc.Model(ours.config, initialize=False)
    for name, value in ours.parameters.items():
        plain.set_parameter(name, value)
    want = model(torch.tensor(tokens)).logits
    for place, exported in (("same", ours), ("own", plain)):
        settings, weights = interop.export_original("hf", exported)
        write_folder(folder / place, {**settings, "dtype": "float32"}, weights, shard_bytes=1 << 20)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder / place, **IMPLEMENTATIONS)
        # Without imported settings, the first type with all features of the model.
        assert loaded.config.model_type == (kind if place == "same" else settings["model_type"])
        assert torch.equal(loaded.eval()(torch.tensor(tokens)).logits, want)
        again = interop.load_original("hf", folder / place, folder / place)
        assert again.config.settled() == ours.config.settled()


def test_draws_have_every_option() -> None:
    for kind in ROTARY:
        all_of = [drawn(kind, number) for number in range(DRAWS)]
        assert {s["rope_parameters"]["rope_type"] for s in all_of} == {"default", "linear", "llama3"}, kind
        assert {s["tie_word_embeddings"] for s in all_of} == {True, False}
        assert any(s.get("head_dim", 0) * s["num_attention_heads"] > s["hidden_size"] for s in all_of)
        assert any(s["num_key_value_heads"] < s["num_attention_heads"] for s in all_of)
        windows = [s.get("sliding_window") for s in all_of]
        assert kind == "llama" or any(w is not None and w < T for w in windows), kind


def test_a_longer_window_changes_the_logits(tmp_path: Path) -> None:
    number = next(n for n in range(DRAWS) if drawn("mistral", n)["sliding_window"] in (1, 3, 9))
    made("mistral", number, tmp_path / "hf")
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    ids = batch(settings["vocab_size"])["tokens"]
    narrow = interop.load_original("hf", settings, tmp_path / "hf")
    wide = interop.load_original("hf", {**settings, "sliding_window": None}, tmp_path / "hf")
    window = settings["sliding_window"]
    same = np.abs(narrow.logits(ids) - wide.logits(ids)).max(-1).max(0)
    assert same[:window].max() == 0 and same[window:].min() > 1e-4
