"""The commands of mu-Transformer's document, run to their end: on a text of ours, the third on its own data set."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import documents
from document_sizes import OF_MU_TRANSFORMER, with_keys
from mudd_core.cli import main
from mudd_core.data.tokenize import train_bpe
from mudd_core.run.continuations import prompts_of
from printed_hints import require_sample_command_works

COMMANDS = [command.words for command in documents.commands("mu_transformer")]
ON_TEXT = (0, 1, 3)  # the third has a data set and a tokenizer of its own


class Tracker:
    """A run of wandb that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}

    def log(self, values: dict[str, Any], step: int) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        pass


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    run, module = Tracker(), types.ModuleType("wandb")
    module.init, module.Settings = lambda **arguments: run, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_MODE", "offline")
    return run


@pytest.mark.parametrize("number", ON_TEXT)
def test_a_command_trains_to_its_end(
    number: int, tiny_text: Path, tmp_path: Path, tracker: Tracker, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f"data.path={tiny_text} data.tokenizer=bytes data.cache_dir={tiny_text.parent / 'cache'}"
    sizes = " ".join(f"--config.{word}" for word in OF_MU_TRANSFORMER.split())
    words = with_keys(COMMANDS[number], f"{sizes} {data} --workdir={tmp_path / 'w'} train.threads=1")
    assert main(words) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    (run,) = (tmp_path / "w").iterdir()
    assert "d_model: 16\n" in told and "{'step': 2, 'sec_per_step': " in told
    assert "{'step': 2, 'sec_per_step': " in (run / "log.txt").read_text()
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    assert (run / "checkpoints" / "step-4").is_dir() and (run / "tensorboard").is_dir()
    assert bool(tracker.rows) == (number == 3)
    require_sample_command_works(told)


def test_a_sweep_of_two_rates_in_one_folder(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = OF_MU_TRANSFORMER.split()
    data = (f"data.path={tiny_text}", "data.tokenizer=bytes", f"data.cache_dir={tiny_text.parent / 'cache'}")
    words = [f"--config.{word}" for word in shape]
    common = ["--config=mup/tiny.py", f"--workdir={tmp_path}", *data, "--threads", "1", *words]
    for rate in ("0.25", "0.015625"):
        assert main([*common, "--mode=train", f"--config.lr_base={rate}"]) == 0
        assert f"_a{rate}_w0.0_m16_l1_" in capsys.readouterr().out
    runs = sorted(path.name for path in tmp_path.iterdir())
    assert not any((tmp_path / run / "sweep.tsv").exists() for run in runs)
    assert len(runs) == 2 and all((tmp_path / run / "summary.json").is_file() for run in runs)
    assert all(
        list((tmp_path / run).glob("plugins/profile/*/*.trace.json.gz")) for run in runs
    )  # steps 2 to 4
    losses = [json.loads((tmp_path / run / "summary.json").read_text())["val_loss"] for run in runs]
    assert losses[0] != losses[1]
    assert main([*common, "--mode=validation", "--config.lr_base=0.25"]) == 0
    assert "validation loss" in capsys.readouterr().out
    assert main([*common, "--mode=sample", "--config.lr_base=0.25"]) == 0
    assert re.fullmatch(r"(PROMPT:\n.*?\nCONTINUATION:\n.*?\n\n){4}", capsys.readouterr().out, re.DOTALL)
    short = ["--config.sampling_prompt_len=3"]
    assert main([*common, "--mode=sample", "--config.lr_base=0.25", *short]) == 0
    prompts = re.findall(r"PROMPT:\n(.*?)\nCONTINUATION:", capsys.readouterr().out, re.DOTALL)
    assert [len(prompt.encode()) for prompt in prompts] == [3] * 4
    assert main([*common, "--mode=test", "--config.lr_base=0.25"]) == 2  # pipeline text has no test split
    assert "--split=test: expected data.pipeline=rows" in capsys.readouterr().err


def test_the_documents_data_set_and_tokenizer_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [
        json.dumps({"text": f"{number} rows of a few words " * (number % 5 + 1)}) for number in range(90)
    ]
    for split, part in (("train", texts[:60]), ("validation", texts[60:75]), ("test", texts[75:])):
        (tmp_path / "c4" / "en" / split).mkdir(parents=True)
        (tmp_path / "c4" / "en" / split / "a.jsonl").write_text("\n".join(part) + "\n")
    (tmp_path / "t5-base").mkdir()
    (tmp_path / "t5-base" / "tokenizer.json").write_bytes(train_bpe(["\n".join(texts).encode()], 1, 300))
    here = {
        "t5-base": str(tmp_path / "t5-base"),
        "c4": str(tmp_path / "c4"),
        "/tmp/workdir": str(tmp_path / "w"),
    }
    words = [
        f"{name}={here.get(value, value)}"
        for name, _, value in (word.partition("=") for word in COMMANDS[2])
        if name != "--mode"
    ]
    shape = OF_MU_TRANSFORMER.split()
    words += [
        *(f"--config.{word}" for word in shape),
        f"data.cache_dir={tmp_path / 'cache'}",
        "train.threads=1",
    ]
    for mode in ("train", "validation", "test", "sample"):
        assert main([*words, f"--mode={mode}"]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    losses = re.findall(r"^Eval loss: (\d+\.\d+)$", told, re.MULTILINE)
    assert len(losses) == len(set(losses)) == 2 and ": test loss " in told
    assert "d_model: 16\n" in told and "{'step': 2, 'sec_per_step': " in told and "CONTINUATION:" in told
    (run,) = (tmp_path / "w").iterdir()
    assert run.name.startswith("mutransformer_c4_default_t0_")
    assert json.loads((run / "config.json").read_text())["data"]["pipeline"] == "rows"


def test_prompts_are_cut_where_their_document_ends() -> None:
    inputs = np.arange(12, dtype=np.int32).reshape(3, 4)
    targets = np.array([[1, 1, 1, 1], [1, -1, -1, -1], [-1, -1, -1, -1]], np.int32)
    assert prompts_of({"inputs": inputs, "targets": targets}, 3) == [[0, 1, 2], [4]]
