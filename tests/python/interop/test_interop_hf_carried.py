"""Files next to the weights of a Hugging Face folder: kept by import, written by export, refused if malformed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import V, make, transformers
from mudd_core.cli import main
from mudd_core.interop.hf_tables import KINDS

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
VOCAB = {chr(97 + i): i for i in range(26)} | {"</s>": V - 1}


def folder(name: str, path: Path, **save: Any) -> Path:
    """Return a model with a tokenizer, a chat template and generation settings, in odd but legal spellings."""
    make(name, path, **save)
    tokenizer = {"model": {"type": "BPE", "vocab": VOCAB, "merges": []}, "added_tokens": []}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer, indent=3))
    (path / "tokenizer_config.json").write_text(
        '{"eos_token":"</s>",  "tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    (path / "chat_template.jinja").write_text(TEMPLATE)
    (path / "generation_config.json").write_text('{ "eos_token_id": [256, 7], "temperature": 0.6 }')
    (path / "notes.bin").write_bytes(b"not of the tokenizer")
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**settings, "eos_token_id": [256, 7]}))
    return path


@pytest.mark.parametrize("name", ["llama3", "mistral", "qwen2", "qwen3", "gpt2", "mixtral", "qwen3_moe"])
def test_type_tokenizer_and_template_come_back(name: str, tmp_path: Path, capsys: Any) -> None:
    source, run, out = folder(name, tmp_path / "hf"), tmp_path / "run", tmp_path / "out"
    assert main(["import", str(source), f"--workdir={run}"]) == 0
    assert main(["export", f"--workdir={run}", f"--to={out}"]) == 0
    assert "loaded again, its logits are the run's" in capsys.readouterr().out
    before, after = (json.loads((place / "config.json").read_text()) for place in (source, out))
    assert {**before, "dtype": "float32"} == after
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (out / file).read_bytes() == (source / file).read_bytes(), file
    assert not (out / "notes.bin").exists()
    ids = torch.arange(20)[None] * 7 % V
    models = [transformers.AutoModelForCausalLM.from_pretrained(place) for place in (source, out)]
    assert torch.equal(*(model.eval()(ids).logits for model in models))
    chat = transformers.AutoTokenizer.from_pretrained(out).apply_chat_template(
        [{"role": "user", "content": "abc"}], tokenize=False
    )
    assert chat == "<|user|>abc\n"


def test_trained_weights_go_out_in_the_folder_they_came_in(tmp_path: Path) -> None:
    source, run, out = folder("qwen3", tmp_path / "hf"), tmp_path / "run", tmp_path / "out"
    (tmp_path / "text.txt").write_text("some words of a text\n\n" * 300)
    words = [f"data.path={tmp_path / 'text.txt'}", f"data.cache_dir={tmp_path / 'cache'}"]
    words += ["train.steps=2", "train.batch_size=2", "train.seq_len=16", "sample.max_tokens=1"]
    assert main(["import", str(source), f"--workdir={run}", *words]) == 0
    assert main([f"--config={run}/config.json", f"--workdir={run}"]) == 0
    assert main(["export", f"--workdir={run}", f"--to={out}"]) == 0
    assert (out / "tokenizer_config.json").read_bytes() == (source / "tokenizer_config.json").read_bytes()
    ids = np.arange(20)[None] * 7 % V
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    want = loaded(torch.tensor(ids)).logits.detach().numpy()
    assert loaded.config.model_type == "qwen3" and loaded.dtype == torch.float32
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(mc.load_run(run).model.logits(ids) - want).max() <= 1e-4
    assert np.abs(mc.load_run(source).model.logits(ids) - want).max() > 1e-3


def test_another_tokenizer_gets_files_of_its_own(tmp_path: Path) -> None:
    source, run, out = folder("qwen2", tmp_path / "hf"), tmp_path / "run", tmp_path / "out"
    assert main(["import", str(source), f"--workdir={run}", "--tokenizer=bytes"]) == 0
    assert main(["export", f"--workdir={run}", f"--to={out}"]) == 0
    settings = json.loads((out / "config.json").read_text())
    assert settings["model_type"] == "qwen2" and settings["eos_token_id"] == V - 1
    assert not (out / "chat_template.jinja").exists()
    assert (out / "tokenizer.json").read_bytes() != (source / "tokenizer.json").read_bytes()


def changed(path: Path, **settings: Any) -> None:
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def missing_shard(path: Path) -> None:
    sorted(path.glob("model-*.safetensors"))[0].unlink()


def absent_tensor(path: Path) -> None:
    index = path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.9.mlp.up_proj.weight"] = sorted(content["weight_map"].values())[0]
    index.write_text(json.dumps(content))


def cut_shard(path: Path) -> None:
    file = sorted(path.glob("model-*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-5])


def large_tokenizer(path: Path) -> None:
    vocab = {**VOCAB, "zz": V}
    text = json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []})
    (path / "tokenizer.json").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (missing_shard, 2, "names a file 'model-00001-of-"),
        (absent_tensor, 65, "tensor 'model.layers.9.mlp.up_proj.weight' in 'model-00001-of-"),
        (cut_shard, 65, "model-00001-of-"),
        (large_tokenizer, 2, f"expected at most the model's {V} ids, got {V + 1}"),
        (
            lambda path: changed(path, model_type="falcon"),
            2,
            f"one of {', '.join(KINDS)}, gemma3, got 'falcon'",
        ),
        (
            lambda path: changed(path, vocab_size=300),
            2,
            "vocab_size: the weights have 257, the settings say 300",
        ),
        (
            lambda path: changed(path, quantization_config={"bits": 4}),
            2,
            "[hf] quantization_config: expected no value",
        ),
        (
            lambda path: changed(path, attention_sink=4),
            2,
            "[hf] attention_sink: expected a setting of transformers'",
        ),
        (
            lambda path: changed(path, rope_scaling={"type": "yarn"}),
            2,
            "rope_scaling.rope_type: expected one of",
        ),
        (lambda path: changed(path, head_dim=8), 2, "q_proj.weight' has shape"),
    ],
)
def test_bad_folders(spoil: Any, code: int, words: str, tmp_path: Path, capsys: Any) -> None:
    source = folder("qwen3", tmp_path / "hf", max_shard_size="4KB")
    spoil(source)
    assert main(["import", str(source), f"--workdir={tmp_path / 'run'}"]) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("end", ["<|eot|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"])
@pytest.mark.parametrize("named_in", ["tokenizer_config.json", "special_tokens_map.json"])
def test_an_end_that_only_a_config_names_is_that_of_the_run(
    end: str, named_in: str, tmp_path: Path, capsys: Any
) -> None:
    source, run, moved = folder("llama3", tmp_path / "hf"), tmp_path / "run", tmp_path / "moved"
    vocab = {**VOCAB, end: V - 1}
    del vocab["</s>"]
    (source / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}})
    )
    (source / "tokenizer_config.json").write_text("{}")
    (source / named_in).write_text(json.dumps({"eos_token": end}))
    (tmp_path / "text.txt").write_text("someword" * 300)
    words = [f"data.path={tmp_path / 'text.txt'}", f"data.cache_dir={tmp_path / 'cache'}"]
    words += ["train.steps=2", "train.batch_size=2", "train.seq_len=16", "sample.max_tokens=1"]
    assert main(["import", str(source), f"--workdir={run}", *words]) == 0
    wanted = mc.load_run(source).tokenizer
    assert wanted is not None and wanted.eos_id == V - 1
    run.rename(moved)
    found = mc.load_run(moved).tokenizer
    assert found is not None and found.eos_id == V - 1 and found.encode("abc") == wanted.encode("abc")
    moved.rename(run)
    assert main([f"--config={run}/config.json", f"--workdir={run}"]) == 0
    found = mc.load_run(run).tokenizer
    assert found is not None and found.eos_id == V - 1
    assert main(["export", f"--workdir={run}", f"--to={tmp_path / 'out'}"]) == 0
    for file in ("tokenizer.json", "tokenizer_config.json", named_in):
        assert (tmp_path / "out" / file).read_bytes() == (source / file).read_bytes(), file
