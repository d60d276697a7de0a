"""The benchmark's exact commands: a test adds only files, a bucket and a folder with the names on the hub.

The long commands train 250 updates of 32,768 tokens. They are only planned here (--plan), and a shorter run starts from
the URL of their checkpoint.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import pytest

import document_commands
from document_sizes import GPT2, MIXTRAL, texts
from memory_bucket import Bucket, open_bucket
from mudd_core.checkpoint.weights import SHARDED
from mudd_core.cli import main
from mudd_core.data.tokenizers.bpe_training import train_bpe
from places import ROOT

COMMANDS = [command.words for command in document_commands.commands("mlperf_moe")]
C4 = "/mlperf-llm-public2/c4"
START = "gs://lizhiyu-multipods-eu-west/moe/checkpoints-20240803/mixtral822/"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a storage with the benchmark's two folders of data."""
    files = open_bucket(monkeypatch)
    folders = {
        "en_json/3.0.1": [f"c4-train.{number:05d}-of-01024.json" for number in (1, 767, 768, 1023)],
        "en_val_subset_json": ["c4-validation_24567exp.json"],
    }
    for folder, names in folders.items():
        for name in names:
            lines = [json.dumps({"text": text * 20}) for text in texts(60)]
            files.makedirs(f"{C4}/{folder}", exist_ok=True)
            files.pipe_file(f"{C4}/{folder}/{name}", ("\n".join(lines) + "\n").encode())
    return files


@pytest.fixture
def folder(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the documents' files with small sizes; output_dir of the config is a folder of the test instead of /tmp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shape = {**MIXTRAL, "vocab_size": 300, "max_position_embeddings": 32768}
    for name in ("mixtral80.json", "mixtral822.json"):
        Path(name).write_text(json.dumps(shape), encoding="utf-8")
    tokenizer = train_bpe(["\n".join(texts(60)).encode()], 1, 300)
    for name in ("8x7B", "8x22B"):
        place = tmp_path / f"home/hub/models--mistralai--Mixtral-{name}-v0.1"
        (place / "snapshots/abc").mkdir(parents=True)
        (place / "refs").mkdir()
        (place / "refs/main").write_text("abc", encoding="ascii")
        (place / "snapshots/abc/tokenizer.json").write_bytes(tokenizer)
    shutil.copytree(ROOT / "configs/clm", "clm")
    root = Path("clm/config.yaml")
    root.write_text(root.read_text().replace("output_dir: /tmp", f"output_dir: {tmp_path / 'out'}"))
    module = importlib.import_module("mudd_core.programs.moe.hydra")
    monkeypatch.setattr(module, "shipped_folders", lambda: [Path("clm")])
    return tmp_path


def test_the_first_dry_run_to_the_letter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS[3]]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    summary = json.loads((folder / "out/moe_trial/summary.json").read_text())
    assert summary["step"] == 30 and shown.out.count('"eval_accuracy"') == 10
    assert "trains on train2" in shown.err and '"train_samples", "value": 120,' in shown.out


def test_the_second_dry_run_to_the_letter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("seed").mkdir()
    shape = {**GPT2, "vocab_size": 300, "n_positions": 512}
    Path("seed/config.json").write_text(json.dumps(shape), encoding="utf-8")
    shutil.copy(next((folder / "home").rglob("tokenizer.json")), "seed")
    own = (
        "clm",
        "model.name_or_path=seed",
        "+model.random_init=true",
        "exp_name=seed",
        "max_steps=1",
        "lr=0",
    )
    assert main([*own, "n_eval_examples=1", "max_length=64"]) == 0, capsys.readouterr().err
    assert main(["export", f"--workdir={folder / 'out/seed'}", "--to=gpt2"]) == 0
    assert main([*COMMANDS[4]]) == 0, capsys.readouterr().err
    summary = json.loads((folder / "out/moe_trial/summary.json").read_text())
    assert summary["step"] == 30


@pytest.mark.parametrize("number", range(3))
def test_the_long_lines_plan(number: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMANDS[number], "--plan"]
    Path("out").mkdir()
    assert main(words) == 0, capsys.readouterr().err
    assert "parameters" in capsys.readouterr().out


def test_a_checkpoint_of_a_bucket_starts_a_run(
    folder: Path, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a run in a bucket is fetched, and that a checkpoint in the reference's own format is an error."""
    short = ("clm", "model.config_path=mixtral822.json", "max_steps=2", "max_length=64", "n_eval_examples=9")
    assert main([*short, "exp_name=source"]) == 0, capsys.readouterr().err
    start = f"checkpoint_manager_path={START}"
    assert main([*short, "exp_name=nothing", start]) == 2
    assert "expected a work directory of this program at 'gs://lizhiyu" in capsys.readouterr().err
    bucket.pipe_file(f"{START.removeprefix('gs:/')}.metadata", b"x")
    assert main([*short, "exp_name=theirs", start]) == 2
    assert SHARDED in capsys.readouterr().err
    bucket.rm(f"{START.removeprefix('gs:/')}.metadata")
    bucket.put(f"{folder}/out/source/", START.removeprefix("gs:/"), recursive=True)
    shutil.rmtree(folder / "out/source")
    for name, word in (("begun", start), ("again", f"{start}checkpoints/step-2")):
        assert main([*short, f"exp_name={name}", word, "lr=0"]) == 0, capsys.readouterr().err
    first, second = (
        json.loads((folder / f"out/{name}/summary.json").read_text())["final_hash"]
        for name in ("begun", "again")
    )
    assert first == second and "fetched step 2 from gs://lizhiyu" in capsys.readouterr().err


def test_a_folder_of_torch_xla_is_refused_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("theirs/0").mkdir(parents=True)
    Path("theirs/0/__0_0.distcp").write_bytes(b"x")
    short = ("clm", "model.config_path=mixtral822.json", "max_steps=2", "max_length=64")
    assert main([*short, "checkpoint_manager_path=theirs"]) == 2
    assert SHARDED in capsys.readouterr().err
