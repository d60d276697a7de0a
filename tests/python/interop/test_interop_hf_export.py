"""Exported folders as stock transformers reads them: dropout, capacity, tokenizers, the end-of-document id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import make, transformers
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import MixtralConfig
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.interop import export_original
from mudd_core.tools.export_weights import folder as export_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
FAMILIES = {  # of a tiny config: the programs that `export` tries without --system, and the matching one
    "tiny.py": (("hf",), "hf"),
    "gpt2/tiny.py": (("hf",), "hf"),
    "mixtral/tiny.py": (("hf",), "hf"),
    "mup/tiny.py": (("mu_transformer",), "mu_transformer"),
    "muddformer/tiny.py": (("muddformer_torch", "muddformer_jax"), "muddformer_jax"),
    "tokenformer/tiny.py": (("tokenformer_neox", "tokenformer_jax"), ""),
}
RATES = {"resid_pdrop": 0.2, "embd_pdrop": 0.15, "attn_pdrop": 0.05}
TEXT = "The mill stands by the river, and the miller's cat sleeps: dix, cent, mille, 百.\n"


def trained(folder: Path, tokenizer: str, *more: str) -> None:
    """Train a run of one update in `folder`/run, started there, so its cache is the default one."""
    (folder / "text.txt").write_text("".join(f"{i} {TEXT}\n\n" for i in range(200)))
    words = [
        "--config=tiny.py",
        "data.path=text.txt",
        f"data.tokenizer={tokenizer}",
        "data.vocab_size=300",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=16",
        "train.steps=1",
        "train.batch_size=2",
        "train.seq_len=32",
        "sample.max_tokens=1",
        "--workdir=run",
    ]
    assert main([*words, *more]) == 0


def ends_at_eos(folder: Path, eos: int) -> None:
    """Check that stock transformers, using only the folder, stops at the end of a document."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("The mill", return_tensors="pt")
    with torch.no_grad():  # the end of a document is the most likely token at any position
        for parameter in model.parameters():
            parameter.zero_()
        model.get_input_embeddings().weight.fill_(1.0)
        head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)
        head.weight.zero_()
        head.bias.zero_()
        head.bias[eos] = 1.0
        model.set_output_embeddings(head)
    out = model.generate(**ids, max_new_tokens=9, do_sample=False)
    assert out[0].tolist() == [*ids["input_ids"][0].tolist(), eos]


@pytest.mark.parametrize("kind", ["bpe", "bytes", "folder", "sentencepiece"])
def test_the_tokenizer_goes_with_the_weights_from_anywhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    name = kind
    if kind == "folder":
        Path("tok").mkdir()
        Path("tok/tokenizer.json").write_bytes(train_bpe([TEXT.encode()] * 9, 9, 280))
        Path("tok/tokenizer_config.json").write_text(
            json.dumps({"eos_token": "<|endoftext|>", "pad_token": "!"})
        )
        name = "tok"
    elif kind == "sentencepiece":
        sentencepiece = pytest.importorskip("sentencepiece")
        Path("words.txt").write_text(TEXT * 50)
        sentencepiece.SentencePieceTrainer.train(
            input="words.txt", model_prefix="spm", vocab_size=290, model_type="bpe", byte_fallback=True
        )
        name = "spm.model"
    trained(tmp_path / "a", name)
    monkeypatch.chdir(tmp_path / "b")  # neither the cache nor the tokenizer's file is found by its name
    assert main(["export", f"--workdir={tmp_path / 'a' / 'run'}", "--to=out"]) == 0
    settings = json.loads(Path("out/config.json").read_text())
    generation = json.loads(Path("out/generation_config.json").read_text())
    eos = settings["eos_token_id"]
    assert (
        isinstance(eos, int) and generation["eos_token_id"] == eos and generation["pad_token_id"] is not None
    )
    assert settings["pad_token_id"] == (None if kind != "folder" else generation["pad_token_id"])
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    assert tokenizer.eos_token_id == eos
    text = "The miller's cat, dix 百."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    here = tmp_path / "a" / (name if kind != "bpe" else "run")
    own = find_tokenizer(kind if kind == "bytes" else str(here), 0).make()
    assert own.encode(text) == ids and own.eos_id == eos
    ends_at_eos(Path("out"), eos)


def test_dropout_of_gpt2_is_carried_both_ways(tmp_path: Path, capsys: Any) -> None:
    make("gpt2", tmp_path / "hf")
    file = tmp_path / "hf" / "config.json"
    settings = {**json.loads(file.read_text()), **RATES}
    del settings["attn_pdrop"]  # absent: 0.1
    file.write_text(json.dumps(settings))
    run = f"--workdir={tmp_path / 'run'}"
    assert main(["import", str(tmp_path / "hf"), run, "--tokenizer=bytes"]) == 0
    model = mc.load_config(str(tmp_path / "run" / "config.json")).model
    assert (model.resid_dropout, model.embd_dropout, model.attn_dropout) == (0.2, 0.15, 0.1)
    assert main(["export", run, f"--to={tmp_path / 'out'}"]) == 0
    back = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert (back.resid_pdrop, back.embd_pdrop, back.attn_pdrop) == (0.2, 0.15, 0.1)
    assert "left out" not in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "setting"), [("llama", "attention_dropout"), ("phi3", "resid_pdrop")])
def test_dropout_of_llama_is_noted(kind: str, setting: str, tmp_path: Path, capsys: Any) -> None:
    make(kind, tmp_path / "hf")
    file = tmp_path / "hf" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), setting: 0.25}))
    assert main(["import", str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}", "--tokenizer=bytes"]) == 0
    assert f"note: {setting} of 0.25 is left out" in capsys.readouterr().err


def test_capacity_is_refused_and_the_way_out_is_stock_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT * 300)
    words = [
        "--config=mixtral/tiny.py",
        "data.path=text.txt",
        "data.tokenizer=bytes",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.n_kv_head=1",
        "model.d_ff=16",
        "model.n_expert=4",
        "train.steps=1",
        "train.batch_size=2",
        "train.seq_len=32",
        "model.capacity_factor=0.5",
        "model.z_coef=0.001",
        "sample.max_tokens=1",
        "--workdir=run",
    ]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["export", "--workdir=run", "--to=out"]) == 2
    error = capsys.readouterr().err
    assert "[hf] model.capacity_factor: expected 0.0" in error and "model.capacity_factor=0" in error
    assert not Path("out").exists()
    assert main(["export", "--workdir=run", "--to=out", "model.capacity_factor=0"]) == 0
    shown = capsys.readouterr()
    assert "its logits are the run's with model.capacity_factor=0" in shown.out
    assert (
        "note: [hf] model.z_coef: the export cannot store 0.001" in shown.err
        and "model.aux_scope" in shown.err
    )
    ids = np.arange(24)[None] * 5 % 257
    loaded = transformers.AutoModelForCausalLM.from_pretrained("out", attn_implementation="eager").eval()
    want = loaded(torch.tensor(ids)).logits.detach().numpy()
    again = mc.interop.load_original("hf", Path("out"), Path("out"))
    # PyTorch computes in float32 too, with its sums in another order.
    assert np.abs(again.logits(ids) - want).max() <= 1e-4
    shape = MixtralConfig(vocab_size=17, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=8)
    with pytest.warns(UserWarning, match="model.aux_scope"):
        export_original("hf", mc.Model(shape))


@pytest.mark.parametrize("name", FAMILIES)
def test_without_a_system_a_run_goes_to_the_program_of_its_family(name: str) -> None:
    config = mc.load_config(name)
    systems, found = FAMILIES[name]
    assert export_folder.systems_of(config) == systems
    assert export_folder.systems_of(config.replace({"log.style": "maxtext"})) == systems[::-1]
    small = config.replace({"model.vocab_size": 300, "model.max_seq_len": 256})
    if found:
        assert export_folder.first_exported(systems, mc.Model(small.model))[0] == found
        return
    with pytest.raises(UserError, match=f"{systems[0]}.*; --system=own writes any model by its own names"):
        export_folder.first_exported(systems, mc.Model(small.model))
