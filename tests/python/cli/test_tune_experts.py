"""Exports of adapters on a model with experts; the router scores two of them equally except for rounding."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import SHARED, transformers
from mudd_core.checkpoint.stored import StoredTensor, made_tensor
from mudd_core.cli import main
from mudd_core.tools.export_weights import forms as export_forms
from mudd_core.tools.export_weights.probe import NEAR, probe_logits, surely_routed
from tune_folders import write_given

Told = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a Mixtral, two of whose router columns differ only by rounding, and a tuning of it."""
    folder = write_given(tmp_path_factory.mktemp("given"), 40)
    for file in (folder / "base").glob("*.safetensors*"):
        file.unlink()
    size = transformers.AutoConfig.from_pretrained(folder / "base").vocab_size
    torch.manual_seed(0)
    settings = {**SHARED, "vocab_size": size, "max_position_embeddings": 128}
    model = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**settings, num_local_experts=4, num_experts_per_tok=1)
    )
    with torch.no_grad():
        layer = model.model.layers[0].mlp
        layer.experts.down_proj *= 1000  # large outputs show which expert a token was routed to
        router = layer.gate.weight
        router *= 30
        router[1] = torch.nextafter(router[0], torch.randint(0, 2, router[0].shape) * 2.0 - 1)
    model.save_pretrained(folder / "base")
    return folder


def tune(*words: str) -> int:
    fields = (
        "train.threads=1",
        "train.seq_len=64",
        "train.steps=3",
        "optim.lr=0.1",
        "optim.schedule=constant",
    )
    return main(["tune", "--base=base", "--data=chat.jsonl", "--workdir=run", *fields, *words])


def test_tokens_that_rounding_does_not_route_are_compared(
    given: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(given)
    assert tune() == 0
    capsys.readouterr()
    assert main(["export", "--workdir=run", "--to=out", "--merged"]) == 0
    text = capsys.readouterr()
    found = re.search(r"^note: compared at (\d+) of (\d+) tokens: at or before the others", text.err, re.M)
    assert found, text.err
    compared, tokens = map(int, found.groups())
    assert tokens == 256 and 16 <= compared < tokens
    run, merged = mc.load("run").model, mc.load("out").model
    far = np.abs(probe_logits(run) - probe_logits(merged)).max(-1)
    sure = surely_routed(merged)
    assert sure is not None and sure.sum() == compared
    limit = NEAR * np.abs(probe_logits(run)).max()
    assert far.max() > limit >= far[sure].max()  # at least one token is routed to another expert

    def wrong(weights: dict[str, StoredTensor], store: mc.ParamStore) -> dict[str, StoredTensor]:
        made = right(weights, store)
        name = "blocks.0.attn.o.w"
        value = np.asarray(made[name]) * np.float32(1.01)
        return {**made, name: made_tensor(value.shape, np.float32, lambda: value)}

    right = export_forms.merged_tensors
    monkeypatch.setattr(export_forms, "merged_tensors", wrong)
    assert main(["export", "--workdir=run", "--to=wrong", "--merged"]) == 1
    assert "it was removed" in capsys.readouterr().err and not (given / "wrong").exists()


def test_adapters_of_experts_are_trained_exported_and_continued(
    given: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(given)
    fields = ("lora.targets=q,gate_up,down", "lora.rank=4", "optim.lr=0.001", "--workdir=low")
    assert tune(*fields) == 0
    assert "routers stay frozen" in capsys.readouterr().out
    assert main(["export", "--workdir=low", "--to=apart", "--adapter"]) == 0
    assert "its logits are the run's" in capsys.readouterr().out
    run = mc.load_run("low").model
    layers = {name.rpartition(".")[0] for name in run.parameters if name.endswith("lora_a")}
    assert {"blocks.0.attn.q", "blocks.0.ffn.gate_up", "blocks.0.ffn.down"} <= layers
    assert main(["export", "--workdir=low", "--to=whole", "--merged"]) == 0
    base, merged = mc.load("base").model, mc.load("whole").model
    for name in base.parameters:
        frozen = not any(part in name for part in (".q.", ".gate.", ".up.", ".down."))
        assert np.array_equal(base.parameters[name], merged.parameters[name]) == frozen, name
    capsys.readouterr()
    assert tune("--adapter=apart", "--workdir=more", "lora.dropout=0") == 0
    assert "lora.targets=q,gate_up,down" in capsys.readouterr().out
    lora, first = mc.load_run("more").model.lora, run.lora
    assert lora is not None and first is not None
    assert (lora.rank, lora.alpha, lora.targets) == (first.rank, first.alpha, first.targets)
