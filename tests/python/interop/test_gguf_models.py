"""GGUF files of each model type, read by the package gguf and computed by llama.cpp."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from gguf_cases import LlamaCpp, farthest, imported
from gguf_models import MODELS
from hf_models import transformers
from mudd_core.interop.gguf.types import TYPES, gguf_type
from mudd_core.interop.hf_settings import original_config
from mudd_core.interop.hf_tables import KINDS

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
PROMPTS = [np.random.default_rng(n).integers(4, 400, n).tolist() for n in (1, 7, 30)]


def exported(run: Path, kind: str) -> Path:
    """Return the GGUF file of a run. kind: the type of its matrices."""
    mc.export(run, run.parent / kind, "gguf", type=kind)  # type: ignore[arg-type]
    return run.parent / kind / "model.gguf"


def test_a_type_that_llama_cpp_lacks_is_refused() -> None:
    assert set(TYPES) <= set(KINDS)
    with pytest.raises(ValueError, match="expected a model type of llama, mistral"):
        gguf_type({"model_type": "opt"})


@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_computes_the_same(name: str, tmp_path: Path) -> None:
    run = imported(name, tmp_path)
    model = mc.load_run(run).model
    far = farthest(LlamaCpp(exported(run, "f32")), model.logits, PROMPTS)
    # llama.cpp reads gelu from a table of fp16 values.
    assert far <= (5e-3 if name.startswith(("gpt", "gemma3")) else 1e-4)


# Five blocks of OLMo 3 differ by 0.06: see the next test. OLMo 2 has the same tensors.
@pytest.mark.parametrize(
    "name",
    sorted(
        {*MODELS}
        - {"llama", "llama_biases", "llama_linear", "gemma3_full", "olmo3", "olmo2_tied", "gpt_neox_tied"}
    ),
)
def test_llama_cpp_computes_nearly_the_same_from_q8_0(name: str, tmp_path: Path) -> None:
    run = imported(name, tmp_path, scale=0.05)
    model = mc.load_run(run).model
    far = farthest(LlamaCpp(exported(run, "q8_0")), model.logits, PROMPTS)
    assert far <= 0.05


def rounded(matrix: Any) -> Any:
    """Return a matrix [rows, columns] after q8_0 of the package gguf."""
    kind = gguf.GGMLQuantizationType.Q8_0
    return gguf.dequantize(gguf.quantize(np.ascontiguousarray(matrix), kind), kind)


def test_q8_0_beyond_its_bound_is_the_rounding_of_the_format(tmp_path: Path) -> None:
    """The package writes the same bytes. Weights with these values move the logits without llama.cpp."""
    run = imported("olmo3", tmp_path, scale=0.05)
    model = mc.load_run(run).model
    plain = {one.name: one for one in gguf.GGUFReader(exported(run, "f32")).tensors}
    for one in gguf.GGUFReader(exported(run, "q8_0")).tensors:
        if one.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            assert np.array_equal(one.data, gguf.quantize(plain[one.name].data, one.tensor_type)), one.name
    server = LlamaCpp(tmp_path / "q8_0" / "model.gguf")
    before = [model.logits(np.array([prompt]))[0, -1] for prompt in PROMPTS]
    far = farthest(server, model.logits, PROMPTS)
    for name, value in list(model.parameters.items()):
        if np.ndim(value) == 2:
            flat = name in ("embed", "head")
            model.set_parameter(name, rounded(value) if flat else rounded(value.T).T)
    after = [model.logits(np.array([prompt]))[0, -1] for prompt in PROMPTS]
    alone = max(
        np.abs(_log_softmax(a) - _log_softmax(b))[np.argsort(a)[-10:]].max()
        for a, b in zip(before, after, strict=True)
    )
    own = farthest(server, model.logits, PROMPTS)
    # Seen: 0.060 in all, 0.045 by the rounded weights. llama.cpp also rounds activations to 8 bits: 0.019.
    assert own <= 0.05 and far <= alone + own + 1e-3 and alone > own


def _log_softmax(logits: Any) -> Any:
    wide = np.asarray(logits, np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
def test_each_type_of_matrices_has_the_bits_of_the_package(kind: str, tmp_path: Path) -> None:
    run = imported("mixtral", tmp_path)
    asked = getattr(gguf.GGMLQuantizationType, kind.upper())
    plain = {one.name: one for one in gguf.GGUFReader(exported(run, "f32")).tensors}
    narrow = gguf.GGUFReader(exported(run, kind))
    assert narrow.fields["general.file_type"].contents() == {"f16": 1, "bf16": 32, "q8_0": 7}[kind]
    changed = 0
    for one in narrow.tensors:
        want = plain[one.name].data
        if one.tensor_type == asked:
            want = gguf.quantize(want, asked)
            changed += 1
        assert np.array_equal(one.data.reshape(-1).view(np.uint8), want.reshape(-1).view(np.uint8)), one.name
    assert changed == 2 + 2 * (4 + 3)  # embedding, head, and the matrices of two blocks


def test_the_package_reads_every_field_and_tensor(tmp_path: Path) -> None:
    run = imported("llama3", tmp_path)
    reader = gguf.GGUFReader(exported(run, "f32"))
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert fields["general.architecture"] == "llama"
    want = {
        "vocab_size": 409,
        "context_length": 64,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "rope.dimension_count": 16,
        "rope.freq_base": 500.0,
    }
    assert {name: fields[f"llama.{name}"] for name in want} == want
    assert fields["tokenizer.ggml.eos_token_ids"] == [0, 3, 2]
    ends = [fields[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "eom")]
    assert ends == [0, 3, 2]
    assert (fields["tokenizer.ggml.bos_token_id"], fields["tokenizer.ggml.add_bos_token"]) == (1, True)
    assert len(fields["tokenizer.ggml.tokens"]) == 409
    assert fields["tokenizer.ggml.token_type"][:5] == [3, 3, 3, 3, 1]
    assert fields["tokenizer.ggml.token_type"][-1] == 5
    tensors = {one.name: one.data for one in reader.tensors}
    model = mc.load_run(run).model
    ours = {name: np.array(value) for name, value in model.parameters.items()}
    assert np.array_equal(tensors["token_embd.weight"], ours["embed"])
    assert np.array_equal(tensors["blk.1.ffn_down.weight"], ours["blocks.1.ffn.down.w"].T)
    rotary = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "hf").model.rotary_emb
    want = 500.0 ** (-np.arange(8) / 8) / rotary.inv_freq.numpy()
    assert tensors["rope_freqs.weight"] == pytest.approx(want, rel=1e-5)  # inv_freq is rounded to fp32
    assert want[0] < 2 and want[-1] == pytest.approx(8)
    # Rows i and i + 8 of a head of 16 are next to each other.
    q, k = ours["blocks.0.attn.q.w"].T, ours["blocks.0.attn.k.w"].T
    assert np.array_equal(tensors["blk.0.attn_q.weight"][16:19], q[[16, 24, 17]])
    assert np.array_equal(tensors["blk.0.attn_k.weight"][16:19], k[[16, 24, 17]])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gpt2", {"activation": "relu"}, "activation_function gelu_new"),
        ("gpt2", {"scale_by_layer": True}, "scale_attn_by_inverse_layer_idx False"),
        ("qwen3", {"attn_bias": True}, "attention_bias False"),
        ("gemma3_text", {"query_pre_attn_scalar": 128}, "query_pre_attn_scalar 256"),
        ("gemma3_text", {"sliding_layers": "0-3,5"}, "layer_types "),
        ("gemma3_text", {"activation": "silu"}, "hidden_activation gelu_pytorch_tanh"),
        ("gemma3_text", {"attn_bias": True}, "attention_bias False"),
        ("smollm3", {"nope_layers": "0-3"}, "no_rope_layers "),
        ("smollm3", {"mlp_bias": True}, "mlp_bias False"),
        ("smollm3", {"attn_bias": True}, "attention_bias False"),
        ("phi3", {"d_head": 64}, "head_dim 96"),
        ("olmo2", {"d_head": 64}, "head_dim 128"),
        ("olmo2", {"attn_bias": True}, "attention_bias False"),
        ("gpt_neox", {"attn_bias": False}, "attention_bias True"),
        ("gpt_neox", {"activation": "relu"}, "hidden_act gelu"),
        ("olmo3", {"rope_local_base": 50.0}, "rope_parameters "),
        ("olmo3", {"sliding_layers": "0-3,5"}, "layer_types "),
        ("olmo3", {"rope_scaling": "llama3", "rope_factor": 2.0}, "rope_type default or linear"),
        ("qwen2", {"rope_scaling": "llama3", "rope_factor": 2.0}, "rope_type default or linear"),
    ],
)
def test_settings_that_llama_cpp_does_not_compute_are_refused(name: str, change: Any, message: str) -> None:
    model = KINDS[name].read({"model_type": name})
    assert gguf_type(original_config(model)).model_type == name
    with pytest.raises(ValueError, match=message):
        gguf_type(original_config(replace(model, **change)))
