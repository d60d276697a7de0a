"""The commands in mu-Transformer's document, run to their end: on a test text, the third on its own data set."""

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
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.programs.mu_transformer import prompts_of
from mudd_core.programs.program import rows_of
from printed_hints import require_sample_command_works

COMMANDS = [command.words for command in documents.commands("mu_transformer")]
ON_TEXT = (0, 1, 3)  # the third has its own data set and tokenizer


class Tracker:
    """A wandb run that stores its arguments."""

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


def test_the_default_rate_passes_losses_whose_perplexity_is_beyond_float32(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "n_layer=2 sequence_len=64 tokens_per_global_batch=512 n_pretrain_step=12 n_warmup_step=1"
    periods = "n_print_step=4 n_save_step=4 n_eval_step=2"
    words = [*COMMANDS[0], *(f"--config.{word}" for word in f"{sizes} {periods}".split())]
    words = [word for word in words if not word.startswith("--workdir")]
    words += [
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
    ]
    words += [f"--workdir={tmp_path}", "train.threads=1"]
    assert main([*words, "train.stop_at=9"]) == 75, capsys.readouterr().err
    assert main(words) == 0, capsys.readouterr().err
    assert "a1.0_" in next(tmp_path.iterdir()).name and "resumed from step 9" in capsys.readouterr().out
    rows = [json.loads(line) for line in next(tmp_path.glob("*/metrics.jsonl")).read_text().splitlines()]
    losses = {row["step"]: row["val_loss"] for row in rows if "val_loss" in row}
    assert list(losses) == [4, 8, 12] and max(losses.values()) > 88.73


def test_start_lines_name_every_field_of_the_program_once(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *(f"--config.{word}" for word in OF_MU_TRANSFORMER.split()),
        "--config.grad_acc_steps=2",
        "--config.sow_param_info=True",
        "--rng_seed=3",
        "--rng_fold=True",
        "--mode=train",
        "--experiment_group=g",
        "--config=mu_transformer/configs/small.py",
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        f"--workdir={tmp_path}",
        "train.threads=1",
        "--config.n_warmup_step=2",
    ]
    words.remove("--config.n_warmup_step=1")
    assert main(words) == 0, capsys.readouterr().err
    lines = re.findall(r"^([a-z_0-9]+): (.*)$", capsys.readouterr().out, re.MULTILINE)
    old = {"lr_max", "seed", "act_name", "act_square", "model_size"}
    every = set(rows_of("mu_transformer")) - old
    assert every <= {name for name, _ in lines} and len({name for name, _ in lines}) == len(lines)
    said = dict(lines)
    assert said["rng_seed"] == "3" and int(said["rng_seed_folded"]) > 3 and said["rng_fold"] == "True"
    assert (said["tokens_per_global_batch"], said["grad_acc_steps"]) == ("128", "2")
    assert (said["n_pretrain_step"], said["n_print_step"], said["n_warmup_step"]) == ("4", "2", "2")
    assert said["lr_base"] == "1.0" and said["sow_param_info"] == "True" and said["experiment_group"] == "g"
    assert said["hfds_identifier"] == "c4" and said["hftr_tokenizer_instance"] == "t5-base"
    assert (said["n_mesh_rows"], said["n_mesh_cols"], said["mode"]) == ("1", "1", "train")


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
    assert (
        main([*common, "--mode=test", "--config.lr_base=0.25"]) == 2
    )  # the pipeline `text` has no test split
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
