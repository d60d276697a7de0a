"""Hugging Face folders by command: import, training, export, and the way back to transformers."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from checkpoint_cases import faults
from hf_models import V, make, transformers
from launched import launched
from mudd_core import interop
from mudd_core.base.errors import SaveError, UserError
from mudd_core.checkpoint import dtypes, weights_folder
from mudd_core.cli import main
from mudd_core.config import TransformerPPConfig
from mudd_core.interop.layout import TheirTensors
from mudd_core.tools.export_weights import command as export_command
from mudd_core.tools.import_weights import command as import_command

pytestmark = pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")


@pytest.mark.parametrize("name", ["llama_tied", "gpt2", "mixtral", "gemma3", "qwen3_moe"])
def test_import_train_export_and_back_to_transformers(name: str, tmp_path: Path, capsys: Any) -> None:
    make(name, tmp_path / "hf")
    run = str(tmp_path / "run")
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(400)))
    words = [
        f"data.path={text}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "train.steps=2",
        "train.batch_size=2",
        "train.seq_len=16",
    ]
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}", *words]) == 0
    assert "is left out" not in capsys.readouterr().err
    with pytest.raises(UserError, match="already contains checkpoints"):
        import_command.main([str(tmp_path / "hf"), f"--workdir={run}"])
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'same'}"]) == 0
    first = mc.load_config(f"{run}/config.json")
    with mc.Trainer(first, run) as trainer:
        assert trainer.fit().step == 2
        ids = np.arange(20)[None] * 7 % V
        want = trainer.model.logits(ids)
    extra = ["--shard-mb=0"] if name == "mixtral" else []
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}", *extra]) == 0
    printed = capsys.readouterr().out
    assert "its logits are the run's" in printed
    code = subprocess.run([sys.executable, "-c", printed.splitlines()[-1].strip()], check=False)
    assert code.returncode == 0, printed
    for folder, equal in ((tmp_path / "out", True), (tmp_path / "same", False)):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        logits = loaded(torch.tensor(ids)).logits.detach().numpy()
        # PyTorch computes in float32 too, with its sums in another order.
        assert (np.abs(logits - want).max() <= 1e-4) == equal
    with pytest.raises(UserError, match="add --force to replace it"):
        export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}"])


@pytest.mark.parametrize("asked", ["stored", "fp32", "fp16"])
def test_frozen_matrices_keep_the_type_of_the_folder(asked: str, tmp_path: Path, capsys: Any) -> None:
    original = make("llama", tmp_path / "made")
    if asked != "fp16":  # bf16 values of this size are exact in fp16
        original = original.to(torch.bfloat16)
    original.save_pretrained(tmp_path / "hf")
    run = tmp_path / "run"
    words = ["--tokenizer=bytes", "train.trainable=*.gain,*.q.w,head", f"train.frozen_dtype={asked}"]
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}", *words]) == 0
    assert ("frozen weights were rounded" in capsys.readouterr().out) == (asked == "fp16")
    found = mc.checkpoint.load_step(run / "checkpoints", 0)
    types = {name: dtypes.name_of(tensor.dtype) for name, tensor in found.stored.items()}
    names = [name for name, kind in types.items() if "/" not in name and kind != "F32"]
    kind = {"stored": "BF16", "fp32": "F32", "fp16": "F16"}[asked]
    assert types["embed"] == kind and types["head"] == types["final_norm.gain"] == "F32"
    assert bool(names) == (asked != "fp32") and not any(name.endswith((".q.w", "gain")) for name in names)
    with mc.Trainer(mc.load_config(f"{run}/config.json"), run) as trainer:
        assert trainer.model.store.describe("embed")["stored"] == {"F32": "float32", "F16": "float16"}.get(
            kind, "bfloat16"
        )
        table = trainer.model.parameters["embed"]
    want = original.model.embed_tokens.weight.detach().float().numpy()
    assert np.array_equal(table, want if asked != "fp16" else want.astype(np.float16))


def test_a_folder_with_a_tokenizer_is_imported_with_it(tmp_path: Path) -> None:
    make("llama", tmp_path / "hf")
    vocab = {letter: i for i, letter in enumerate("abc</s>")} | {"</s>": V - 1}
    tokenizer = json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []})
    (tmp_path / "hf" / "tokenizer.json").write_text(tokenizer)
    run = tmp_path / "run"
    words = [str(tmp_path / "hf"), f"--workdir={run}"]
    with pytest.raises(UserError, match="stepz"):
        import_command.main([*words, "train.stepz=3"])
    assert not run.exists()
    assert import_command.main(words) == 0
    assert (run / "tokenizer.json").read_text() == tokenizer
    assert mc.load_config(str(run / "config.json")).data.tokenizer == str(run / "tokenizer.json")


def test_a_folder_without_config_json_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "model" / "deeper").mkdir(parents=True)
    (tmp_path / "model" / "deeper" / "config.json").write_text("{}")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"")
    for words, says in (
        (
            ["empty"],
            "got empty, which has no config.json; pass the folder of a model (`hf download OWNER/NAME --loc",
        ),
        (["model"], "got model, which has no config.json; pass model/deeper\n"),
        (
            ["weights"],
            "fetch it too, `hf download OWNER/NAME config.json --local-dir weights`, or add --settings=FILE",
        ),
        (
            ["weights", "--settings=none.json"],
            "a JSON file with the settings of the model, got none.json: No such file",
        ),
    ):
        done = launched(tmp_path, "import", *words, "--workdir=run")
        assert done.returncode == 2 and says in done.stderr, done.stderr
        assert not (tmp_path / "run").exists()


def test_an_import_without_its_tokenizer_is_refused(tmp_path: Path, capsys: Any) -> None:
    settings, weights = interop.export_original(
        "hf",
        mc.Model(TransformerPPConfig(vocab_size=300, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=8)),
    )
    weights_folder.write_folder(tmp_path / "hf", settings, weights, shard_bytes=1 << 20)
    words = ["import", str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}"]
    large, model = tmp_path / "large.json", tmp_path / "tokenizer.model"
    model.write_bytes(b"\n\x0b")
    vocab = {"a": 0, "</s>": 300}
    large.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}))
    for more, says in (
        ([], "has no tokenizer.json; give --tokenizer=FILE"),
        ([f"--tokenizer={large}"], "expected at most the model's 300 ids, got 301"),
        ([f"--tokenizer={tmp_path / 'none.json'}"], "No such file"),
        ([f"--tokenizer={model}"], "expected a tokenizer.json, got "),
    ):
        assert main([*words, *more]) == 2
        assert says in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main([*words, "--tokenizer=bytes"]) == 0
    assert mc.load_config(str(tmp_path / "run" / "config.json")).data.tokenizer == "bytes"
    words[2] = f"--workdir={tmp_path / 'other'}"
    assert main([*words, "data.tokenizer=bpe", "data.vocab_size=280"]) == 0  # as requested


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path, capsys: Any) -> None:
    shape = TransformerPPConfig(vocab_size=300, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=8)
    settings, weights = interop.export_original("hf", mc.Model(shape))
    weights["model.norm.weight"][3] = value
    weights_folder.write_folder(tmp_path / "hf", settings, weights, shard_bytes=1 << 20)
    run = tmp_path / "run"
    assert main(["import", str(tmp_path / "hf"), f"--workdir={run}", "--tokenizer=bytes"]) == 2
    told = capsys.readouterr().err
    assert f"'final_norm.gain': expected finite numbers, got {value} at element 3 (1 in all)" in told
    assert not run.exists()


@pytest.mark.parametrize("path", ["/no/such/model", "./model", "runs/model", "~/model", "model.safetensors"])
def test_a_path_that_is_not_there_is_not_advised_as_a_name(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    assert main(["import", path, "--workdir=run"]) == 2
    told = capsys.readouterr().err
    assert told.endswith("which does not exist\n") and "hf download" not in told
    assert main(["import", "org/model-7b.v1", "--workdir=run"]) == 2
    assert "hf download org/model-7b.v1 --local-dir FOLDER" in capsys.readouterr().err


def test_the_name_of_a_model_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", "gpt2", "--workdir=run"]) == 2
    told = capsys.readouterr().err
    assert "expected a folder with config.json" in told and "hf download gpt2 --local-dir FOLDER" in told
    assert not list(tmp_path.iterdir())


def test_an_import_of_what_we_do_not_compute_is_the_users_error(tmp_path: Path) -> None:
    make("llama", tmp_path / "hf")
    file = tmp_path / "hf" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "hidden_act": "gelu"}))
    with pytest.raises(UserError, match="hidden_act"):
        import_command.main([str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_an_export_that_fails_at_any_file_call_leaves_nothing(tmp_path: Path) -> None:
    weights = {name: np.ones(3, np.float32) for name in "ab"}
    (tmp_path / "tokenizer.json").write_text("{}")
    for nth in range(1, 99):
        with faults(fail_at=(nth, errno.ENOSPC)) as files:
            try:
                weights_folder.write_folder(
                    tmp_path / "to" / "out", {}, weights, shard_bytes=0, files={"tokenizer.json": b"{}"}
                )
            except SaveError as error:
                assert "No space left" in str(error)
        left = sorted(path.name for path in (tmp_path / "to").glob("*"))
        assert left in ([], ["out"]), nth
        if left:  # committed: complete, even if the last sync reported an error
            assert len(list((tmp_path / "to" / "out").iterdir())) == 5
            shutil.rmtree(tmp_path / "to" / "out")
        if nth > files.count:
            return
    pytest.fail("an export makes fewer than 99 calls")


def test_force_replaces_an_export_and_no_other_folder(tmp_path: Path) -> None:
    make("llama", tmp_path / "hf")
    run, out, foreign = (tmp_path / name for name in ("run", "out", "foreign"))
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}"]) == 0
    words = ["export", str(run), f"--to={out}"]
    assert launched(tmp_path, *words, "--system=own").returncode == 0
    refused = launched(tmp_path, *words)
    assert refused.returncode == 2 and "add --force to replace it" in refused.stderr
    for system in ("--system=hf", "--system=own"):
        done = launched(tmp_path, *words, "--force", system)
        assert done.returncode == 0, done.stderr
    assert mc.load(out).model.n_parameters == mc.load_run(run).model.n_parameters
    foreign.mkdir()
    (foreign / "README.md").write_text("mine")
    (tmp_path / "link").symlink_to(out)
    for place in (foreign, tmp_path / "link", foreign / "README.md"):
        refused = launched(tmp_path, *words[:2], f"--to={place}", "--force")
        assert refused.returncode == 2 and "expected a new folder or an export" in refused.stderr
    assert (foreign / "README.md").read_text() == "mine" and (tmp_path / "link").is_symlink()


def test_an_export_that_does_not_read_back_is_no_success(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    make("llama", tmp_path / "hf")
    run = str(tmp_path / "run")
    assert import_command.main([str(tmp_path / "hf"), f"--workdir={run}"]) == 0
    right = TheirTensors.__getitem__

    def wrong(tensors: TheirTensors, name: str) -> Any:
        return right(tensors, name) * np.float32(1.001 if name == "model.norm.weight" else 1)

    monkeypatch.setattr(TheirTensors, "__getitem__", wrong)
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'out'}"]) == 1
    assert "differ" in capsys.readouterr().err and not (tmp_path / "out").exists()
    monkeypatch.setattr(export_command, "final_hash", lambda *_: "0" * 64)
    assert export_command.main([f"--workdir={run}", f"--to={tmp_path / 'own'}", "--system=own"]) == 1
    assert "differ" in capsys.readouterr().err and not (tmp_path / "own").exists()
