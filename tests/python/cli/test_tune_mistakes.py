"""The command tune with wrong bases, data and fields: exit code, cause and remedy; and a file in Alpaca's format."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from chat_cases import turns
from hf_models import transformers
from mudd_core.cli import main

safetensors = pytest.importorskip("safetensors.torch")

WORDS = ("train.threads=1", "train.seq_len=64")
Spoil = Callable[[Path], object]
BASE, INDEX = "base/config.json", "base/model.safetensors.index.json"


def tune(*words: str, data: str = "chat.jsonl") -> int:
    return main(["tune", "--base=base", f"--data={data}", "--workdir=runs/mine", *WORDS, *words])


def edit(name: str, change: Callable[[dict[str, object]], object]) -> Spoil:
    """Return a function that changes the object in a JSON file."""

    def spoil(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return spoil


def template(source: str) -> Spoil:
    return lambda folder: (folder / "t.jinja").write_text(source)


def last_record(record: dict[str, object]) -> Spoil:
    def spoil(folder: Path) -> None:
        with (folder / "chat.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    return spoil


def more_ids(value: dict[str, object]) -> None:
    tokens = value["added_tokens"]
    assert isinstance(tokens, list)
    tokens.append({**tokens[-1], "id": tokens[-1]["id"] + 1, "content": "<|more|>"})


def absent_tensor(value: dict[str, object]) -> None:
    files = value["weight_map"]
    assert isinstance(files, dict)
    files["model.layers.9.mlp.up_proj.weight"] = next(iter(files.values()))


def first_shard(folder: Path) -> Path:
    return min((folder / "base").glob("model-*.safetensors"))


def cut_shard(folder: Path) -> None:
    file = first_shard(folder)
    os.truncate(file, file.stat().st_size - 5)


def pickled(folder: Path) -> None:
    for file in (folder / "base").glob("*.safetensors*"):
        file.unlink()
    (folder / "base" / "pytorch_model.bin").write_bytes(b"x")


def other_adapter(folder: Path) -> None:
    """Replace the adapter by one for a base with more inputs."""
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (folder / "other").mkdir()
    (folder / "other" / "adapter_config.json").write_text(json.dumps(settings))
    start = "base_model.model.model.layers.0.self_attn.q_proj"
    factors = {f"{start}.lora_A.weight": torch.zeros(2, 99), f"{start}.lora_B.weight": torch.zeros(16, 2)}
    safetensors.save_file(factors, folder / "other" / "adapter_model.safetensors")


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
RAISES = "{{ raise_exception('no tools here') }}"
CASES: dict[str, tuple[Spoil, tuple[str, ...], int, str]] = {
    "no template": (
        edit("base/tokenizer_config.json", lambda value: value.pop("chat_template")),
        (),
        2,
        "has none (chat_template.jinja, or chat_template in tokenizer_config.json); set data.template=chatml, or",
    ),
    "a template that is not there": (lambda _: None, ("data.template=no.jinja",), 2, "got 'no.jinja': No such file"),
    "a template that raises": (template(RAISES), ("data.template=t.jinja",), 2, "no tools here"),
    "a template that loops": (template(LOOP), ("data.template=t.jinja",), 2, "takes longer than 0.5 s"),
    "a template that is none": (template("{% if %}"), ("data.template=t.jinja",), 2, "is no Jinja template"),
    "an unknown role": (
        last_record({"messages": [{"role": "bot", "content": "x"}]}),
        (),
        2,
        "example 41 of chat.jsonl: turn 1: expected one of system, developer, user, assistant, tool "
            "as role, got 'bot'",
    ),
    "no answer": (last_record({"messages": turns("Why?")}), (), 2, "it has no turn of the assistant"),
    "an empty answer": (last_record({"messages": turns("Why?", " ")}), (), 2, "the answer is empty"),
    "no conversation": (
        lambda folder: (folder / "chat.jsonl").write_text('{"text": "x"}\n'),
        (),
        2,
        "[data.column] example 1 of chat.jsonl: expected records with messages",
    ),
    "a damaged line": (
        lambda folder: (folder / "chat.jsonl").write_text('{"messages": [}\n'),
        (),
        65,
        "line 1 is not JSON",
    ),
    "no tokenizer": (
        lambda folder: (folder / "base" / "tokenizer.json").unlink(),
        (),
        2,
        "[tune] --base: base has no tokenizer.json; AutoTokenizer.from_pretrained('base').save_pretrained('base') of",
    ),
    "a tokenizer with more ids": (edit("base/tokenizer.json", more_ids), (), 2, "expected at most the model's "),
    "a model of another size": (
        edit(BASE, lambda value: value.update(vocab_size=300)),
        (),
        2,
        "vocab_size: the weights have 3",
    ),
    "a missing shard": (lambda folder: first_shard(folder).unlink(), (), 2, "names a file 'model-00001"),
    "a cut shard": (cut_shard, (), 65, "model-00001-of-"),
    "an absent tensor": (edit(INDEX, absent_tensor), (), 65, "layers.9.mlp.up_proj.weight' in 'model-"),
    "a pickle": (pickled, (), 2, "base has no .safetensors file; pytorch_model.bin is a pickle, which runs code"),
    "a file of the base": (
        lambda _: None,
        ("--base=base/model-00001-of-00003.safetensors",),
        2,
        "got the file base/model-00001-of-00003.safetensors; pass its folder",
    ),
    "a damaged config": (lambda folder: (folder / BASE).write_text("{"), (), 65, "config.json"),
    "an unknown kind of model": (edit(BASE, lambda value: value.update(model_type="falcon")), (), 2, "one of llama, "),
    "an adapter of another base": (other_adapter, ("--adapter=other",), 2, "16 inputs, got one with 99; give the base"),
    "no adapter": (lambda _: None, ("--adapter=none",), 2, "expected a folder of PEFT with adapter_config.json, got "),
    "rank 0": (lambda _: None, ("lora.rank=0",), 2, "lora.rank: expected at least 1, got 0"),
    "unknown targets": (lambda _: None, ("lora.targets=q_proj",), 2, "the model has q, k, v, o, gate, up, down"),
    "an unknown method": (lambda _: None, ("tune.method=qlora",), 2, "expected lora, full or last:N"),
    "too many blocks": (lambda _: None, ("tune.method=last:9",), 2, "expected at most last:2"),
    "an unknown field": (lambda _: None, ("lora.r=8",), 2, "lora.r"),
    "a field of the model": (lambda _: None, ("model.d_model=32",), 2, "the base decides the model"),
    "no data": (lambda folder: (folder / "chat.jsonl").unlink(), (), 2, "chat.jsonl"),
    "longer than all rows": (lambda _: None, ("train.seq_len=4",), 2, "raise train.seq_len or set data.too_long=cut"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_with_its_way_out_and_leaves_no_run(
    case: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudd_core.data.chat.renderer.SECONDS", 0.5)
    spoil, words, code, said = CASES[case]
    spoil(here)
    assert tune(*words) == code
    text = capsys.readouterr().err
    assert said in text and "error: " in text and "internal" not in text, text
    assert not (here / "runs" / "mine" / "config.json").exists()


def test_an_adapter_of_another_base_is_refused_before_the_import(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other_adapter(here)
    assert tune("--adapter=other") == 2
    shown = capsys.readouterr()
    assert "16 inputs, got one with 99" in shown.err and "importing" not in shown.out
    assert not (here / "runs").exists()
    file = here / "other" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    assert tune("--adapter=other") == 65
    assert "importing" not in capsys.readouterr().out and not (here / "runs").exists()


def test_a_command_that_is_mended_starts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CASES["no template"][0](here)
    for words in ((), ("data.template=no.jinja",), ("data.template=chatml", "lora.targets=q_proj")):
        assert tune(*words, "train.steps=1") == 2
    assert tune("train.steps=1", "data.template=chatml") == 0
    assert "held-out loss: " in capsys.readouterr().out


def test_the_file_of_alpaca_is_read_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"instruction": f"Say {n}.", "input": "", "output": f"the {n}"} for n in range(30)]
    (here / "alpaca_data.json").write_text(json.dumps(records, indent=4))
    assert tune("--plan", data="alpaca_data.json") == 0
    held = "held out"
    line = capsys.readouterr().out.splitlines()
    found = next(one for one in line if one.startswith("data: "))
    train, valid = int(found.split()[1]), int(found.split(held)[0].split()[-1])
    assert train + valid == 30


def test_a_base_in_bf16_stays_in_bf16_and_trains_as_its_values_in_fp32(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(here / "base").bfloat16()
    hashes = []
    for run, kind in (("half", torch.bfloat16), ("whole", torch.float32)):
        model.to(kind).save_pretrained(here / run)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(here / "base" / name, here / run)
        assert tune("train.steps=2", f"--base={run}", f"--workdir=runs/{run}") == 0
        hashes.append(json.loads((here / "runs" / run / "summary.json").read_text())["final_hash"])
        manifest = here / "runs" / run / "base" / "checkpoints" / "step-0" / "manifest.json"
        tensors = json.loads(manifest.read_text())["tensors"]
        assert {tensors[f"blocks.0.attn.{name}.w"]["dtype"] for name in "qkvo"} == {
            "BF16" if run == "half" else "F32"
        }
        assert all(name.endswith((".gain", "count")) for name in tensors if "/" in name)
    assert "frozen parameters are stored in bfloat16" in capsys.readouterr().out
    assert hashes[0] == hashes[1]


def test_a_foreign_metrics_file_is_refused_before_the_base_is_imported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.json").write_text('{"a": 1}\n')
    assert tune("log.metrics_file=mine.json") == 2
    assert "expected a new file or a file of metrics" in capsys.readouterr().err
    assert not (here / "runs").exists() and (here / "mine.json").read_text() == '{"a": 1}\n'
