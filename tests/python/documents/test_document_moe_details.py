"""The benchmark's data, batch, balance loss, log and environment: the statements of its document besides its
results.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

import mudd_core as mc
from document_sizes import MIXTRAL, texts, write_lines
from event_files import events_of
from mpi_ranks import ENVIRONMENT, needs_mpi
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, MixtralConfig, from_dict
from mudd_core.data.sources.splits import sources_of
from mudd_core.engine import memory
from mudd_core.engine.model_shape import resolved_model
from mudd_core.programs.detect import resolve
from mudd_core.programs.moe.hydra import jobs
from mudd_core.programs.moe.hydra.model import BENCHMARK
from mudd_core.programs.moe.mllog_settings import settings_of
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved
from mudd_core.run.build.memory_advice import NONE_FITS
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.records.events import StepRecord
from mudd_core.run.records.machine import Peak
from mudd_core.run.report.style import RunFacts, style_of
from places import ROOT

WORDS = (
    "model.config_path=shape.json",
    "max_steps=4",
    "max_length=16",
    "per_device_train_batch_size=4",
    "output_dir=out",
    "dataset.train_dataset_path=c4",
    "dataset.eval_dataset_path=val",
    "data.tokenizer=bytes",
    "eval_frequency=2",
    "train.threads=1",
    "sample.max_tokens=1",
)
TRAIN1, TRAIN2 = (0, 5, 767), (768, 900, 1023)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files of both training splits, another with both validation splits, and a model's sizes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMPLIANCE_FILE", raising=False)
    for number in (*TRAIN1, *TRAIN2):
        write_lines(tmp_path / f"c4/c4-train.{number:05d}-of-01024.json", texts(10 + number % 7, number))
    write_lines(tmp_path / "val/c4-validation_24567exp.json", texts(12))
    write_lines(tmp_path / "val/c4-validation.00000-of-00008.json", texts(20))
    (tmp_path / "shape.json").write_text(json.dumps(MIXTRAL), encoding="utf-8")
    return tmp_path


def resolved(*words: str, environment: dict[str, str] | None = None, **options: str) -> Resolved:
    found = resolve(
        CommandLine(
            "clm", "", words, {f"--{name}": value for name, value in options.items()}, environment or {}
        )
    )
    assert found is not None and found.grammar == "hydra"
    return found


def mllog(text: str) -> dict[str, object]:
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines() if ":::MLLOG" in line]
    return {line["key"]: line["value"] for line in lines}


def test_a_folder_of_all_files_trains_on_train2_and_validates_on_its_part(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Start the command with the program's own file, as in the document."""
    documents = sum(10 + number % 7 for number in TRAIN2)
    assert main(["run_clm.py", *WORDS, "exp_name=all"]) == 0
    shown = capsys.readouterr()
    assert "note: 'run_clm.py': ignored, because mudd_core runs in its place" in shown.err
    assert "trains on train2, the files 768 to 1023 of C4: 3 of the 6 files" in shown.err
    assert "validates on c4-validation_24567exp: 1 of the 2 files" in shown.err
    settings = mllog(shown.out)
    assert (settings["train_samples"], settings["eval_samples"]) == (documents, 12)
    assert (settings["opt_learning_rate_warmup_factor"], settings["config_filename"]) == (0.25, "config.yaml")
    # No TensorBoard event contains a tag twice.
    tags = Counter(
        (event.step, value.tag)
        for event in events_of(Path("out/all/tensorboard"))
        for value in event.summary.value
    )
    assert tags[4, "train/loss"] == tags[4, "train/grad_norm"] == tags[4, "train/lr"] == 1
    assert max(tags.values()) == 1


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("c4", TRAIN2),
        ("c4/c4-train.*", (*TRAIN1, *TRAIN2)),  # files that the path names are used
        ("c4/c4-train.00005-of-01024.json", (5,)),
        ("first", TRAIN1),  # only train1
    ],
)
def test_which_files_of_c4_are_read(path: str, read: tuple[int, ...], folder: Path) -> None:
    for number in TRAIN1:
        (folder / "first").mkdir(exist_ok=True)
        shutil.copy(folder / f"c4/c4-train.{number:05d}-of-01024.json", folder / "first")
    data = mc.config.DataConfig(path=path, eval_path="val/c4-validation.*", pipeline="blocks")
    found = sources_of(data)
    assert tuple(int(file.name[9:14]) for file in found.train) == read and len(found.valid) == 1
    assert any("train2" in line for line in found.warnings) == (path == "c4")


def test_the_warm_up_factor_is_the_ratio_typed(folder: Path) -> None:
    factor = "opt_learning_rate_warmup_factor"
    ratio = resolved(*WORDS, "sched.warmup_ratio=0.3").config
    assert (ratio.optim.warmup_steps, settings_of(ratio, (1, 1))[factor]) == (1, 0.3)
    steps = resolved(*WORDS, "~sched.warmup_ratio", "+sched.warmup_steps=2").config
    assert (steps.optim.warmup_steps, settings_of(steps, (1, 1))[factor]) == (2, 0.5)


def test_variables_of_a_tpu_are_noted(folder: Path) -> None:
    notes = resolved(*WORDS, environment={"PJRT_DEVICE": "TPU", "XLA_USE_SPMD": "1", "HOME": "/"}).notes
    assert [note.partition(":")[0] for note in notes] == [
        "PJRT_DEVICE",
        "XLA_USE_SPMD",
        "per_device_train_batch_size=4",
    ]


def test_a_long_line_says_what_the_experiment_would_be(folder: Path) -> None:
    length, experiment, size, every = BENCHMARK
    words = [word for word in WORDS if not word.startswith(("max_length", "eval_freq", "per_device"))]
    line = (*words, f"max_length={length}", "per_device_train_batch_size=1")
    note = f"an update has 1 sequence; {experiment} is the benchmark's run, with {size} sequences an update"
    assert any(note in found for found in resolved(*line).notes)
    shipped = yaml.safe_load((ROOT / "configs/clm/experiment/gbs256_tpu.yaml").read_text())
    assert (shipped["max_length"], shipped["global_train_batch_size"], shipped["eval_frequency"]) == (
        length,
        size,
        every,
    )
    whole = resolved(*line, devices=str(size))
    assert (whole.config.train.batch_size, whole.config.train.eval_every) == (size, every)
    assert not any("per_device" in found for found in whole.notes)
    assert any("2 ranks share this batch" in found for found in resolved(*WORDS, ranks="2").notes)


def scope_of(*words: str) -> tuple[str, list[str]]:
    found = resolved(*WORDS, *words)
    assert isinstance(found.config.model, MixtralConfig)
    return found.config.model.aux_scope, [note for note in found.notes if "balance loss" in note]


def test_the_balance_loss_averages_over_the_batch_where_it_is_one_run(folder: Path) -> None:
    assert scope_of() == ("batch", [])
    assert scope_of("model.aux_scope=shard") == ("shard", [])
    for words in (("gradient_accumulation_steps=2",), ("global_train_batch_size=4096",)):
        scope, notes = scope_of(*words)
        assert scope == "shard" and "the original averages it over a micro-batch" in notes[0]


@needs_mpi
def test_ranks_have_the_balance_loss_of_one_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clm", *WORDS, "exp_name=one"]) == 0
    one = capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "clm", *WORDS, "exp_name=two", "--ranks=2"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = [re.findall(r"^step +\d/4 +loss [\d.]+", text, re.M) for text in (one, done.stdout)]
    assert len(steps[0]) == 4 and steps[0] == steps[1]


def test_a_bucket_is_read_where_it_is_mounted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the command of docs/coming-from/mlperf_moe.md: without quotes, for data and for a checkpoint."""
    assert main(["clm", *WORDS, "exp_name=first"]) == 0
    map_ = f"storage.map=gs://b={folder}"
    words = [word.replace("=c4", "=gs://b/c4").replace("=val", "=gs://b/val") for word in WORDS]
    words += ["exp_name=second", "checkpoint_manager_path=gs://b/out/first"]
    assert main(["clm", *words, map_]) == 0, capsys.readouterr().err
    again = resolved(*words, map_, "+start.keep_step=false").config
    assert again.storage.map == f"gs://b={folder}"
    runs = jobs([*WORDS, map_, "--multirun", "lr=1e-3,2e-3"], [])
    assert len(runs) == 2 and all(map_ in run for run in runs)


@pytest.mark.parametrize("ranks", [1, 4])
def test_values_of_a_device_are_those_of_a_rank(ranks: int) -> None:
    facts = RunFacts(
        mc.load_config("tiny.py", ["log.style=moe", "train.log_every=1"]),
        None,
        600.0,
        Peak(lambda: 1e6),
        lambda: 0,
        ranks=ranks,
    )
    record = StepRecord(
        step=1,
        tokens=100,
        loss=1.0,
        lr=1.0,
        grad_norm=1.0,
        tokens_per_second=400.0,
        peak_share=0.5,
        seconds=1.0,
    )
    tags = style_of(facts).scalars(record)
    tokens = facts.config.train.batch_size * facts.config.train.seq_len
    assert tags["perf/per_device_tokens_per_sec"] == 400 / ranks
    assert tags["perf/per_device_active_tflops"] == pytest.approx(600 * tokens / ranks / 1e12)
    assert tags["perf/step_time_seconds"] == tokens / 400


@pytest.mark.parametrize(
    ("have", "way"),
    [(25.0, "optim.moment_dtype=bf16"), (20.0, "optim.second_moment=factored"), (16.0, NONE_FITS)],
)
def test_the_dry_run_names_what_fits(have: float, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use mixtral80.json, which needs 27.3 GiB, and type the advice of the error, which has this grammar."""
    words = (
        "model.config_path=mixtral80.json",
        "eval_frequency=3",
        "n_eval_examples=100",
        "per_device_train_batch_size=4",
        "max_steps=30",
        "data.tokenizer=bytes",
    )
    monkeypatch.setattr(memory, "available_bytes", lambda: (int(have * 2**30), "free memory"))

    def checked(*more: str) -> Config:
        config = resolved(*words, *more).config
        MemoryPlan.of(resolved_model(config, 32_000), config).require()
        return config

    with pytest.raises(UserError) as caught:
        checked()
    assert way in str(caught.value)
    named = str(caught.value).partition("; set ")[2].partition(":")[0].split()
    assert named and checked(*named) == from_dict(mc.config.to_dict(resolved(*words, *named).config))
