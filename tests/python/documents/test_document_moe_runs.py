"""The commands in the benchmark's document with tiny sizes, run to their end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import documents
from document_sizes import GPT2, MIXTRAL, texts, with_keys, write_lines
from mudd_core.cli import main

DATA = "dataset.train_dataset_path=c4 dataset.eval_dataset_path=val data.tokenizer=bytes train.threads=1"
SIZES = f"{DATA} output_dir=out max_length=16 per_device_train_batch_size=4"
COMMANDS = [command.words for command in documents.commands("mlperf_moe")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the benchmark's files, and a GPT-2 in the place where the hub's program stores it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for number in (768, 769):
        write_lines(tmp_path / f"c4/c4-train.{number:05d}-of-01024.json", texts(30, number))
    write_lines(tmp_path / "val/c4-validation_24567exp.json", texts(12))
    for name, shape in (("mixtral", MIXTRAL), ("gpt2", GPT2)):
        (tmp_path / f"{name}.json").write_text(json.dumps(shape), encoding="utf-8")
    return tmp_path


def run(words: tuple[str, ...], text: str, name: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """Run the command with other sizes. Return its work directory, after checking all files that a run leaves."""
    assert main(with_keys(words, f"{SIZES} {text} exp_name={name}")) == 0, capsys.readouterr().err
    folder = Path("out") / name
    assert (folder / ".hydra" / "overrides.yaml").is_file() and (folder / "config.yaml").is_file()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["val_loss"] > 0
    log = (folder / "mlperf_compliance.log").read_text()
    assert log.count('"run_stop"') == 1 and ":::MLLOG" in (folder / "log.txt").read_text()
    return folder


def rates(folder: Path) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["lr"] for row in rows if "lr" in row]


def test_the_convergence_runs_start_from_a_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, faster, slower, dry, _ = COMMANDS
    shape = "model.config_path=mixtral.json"
    source = run(dry, f"{shape} max_steps=8 n_eval_examples=9", "dry", capsys)
    assert rates(source)[0] < rates(source)[-1]
    start = f"{shape} checkpoint_manager_path={source} max_steps=4"
    once = f"{start} global_train_batch_size=4 global_eval_batch_size=4 eval_frequency=2"
    first = run(experiment, once, "first", capsys)
    assert json.loads((first / "config.json").read_text())["start"]["load_parameters_path"] == str(source)
    last = [rates(run(words, start, name, capsys))[-1] for words, name in ((faster, "a"), (slower, "b"))]
    assert last == [4e-5, 2e-5]


def test_the_second_dry_run_starts_from_the_hubs_weights(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry, hub = COMMANDS[-1], folder / "home" / "hub" / "models--openai-community--gpt2"
    initial = run(dry, "model.config_path=gpt2.json max_steps=1 lr=0 n_eval_examples=9", "initial", capsys)
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("abc", encoding="ascii")
    (hub / "snapshots").mkdir()
    assert main(["export", f"--workdir={initial}", f"--to={hub / 'snapshots' / 'abc'}"]) == 0
    found = run(dry, "max_steps=3 n_eval_examples=9", "found", capsys)
    config = json.loads((found / "config.json").read_text())
    assert config["model"]["n_layer"] == 1 and config["start"]["load_parameters_path"].startswith(
        "runs/imported"
    )
    assert config["loss"]["normalize"] == "micro_mean"
