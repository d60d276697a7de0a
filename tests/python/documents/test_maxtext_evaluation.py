"""Evaluation of MUDDFormer's MaxText commands, run in a fresh process; their sizes come from M_ variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from document_sizes import write_records
from event_files import events_of
from mudd_core.run.store.original_run import original_run_text, reader_state_of
from tiny_run import ROOT

COMMAND = ["MaxText/configs/base_v2.yml", "dataset_path=records", "model_name=MUDDLlama2Medium"]
TINY = {
    "M_VOCAB_SIZE": "257",
    "M_BASE_EMB_DIM": "16",
    "M_BASE_NUM_QUERY_HEADS": "2",
    "M_BASE_NUM_KV_HEADS": "2",
    "M_HEAD_DIM": "8",
    "M_BASE_NUM_DECODER_LAYERS": "1",
    "M_BASE_MLP_DIM": "128",
    "M_DYNAMIC_MLP_DIM": "False",
    "M_DYNAMIC_DENSE_HIDDEN_EXPAND": "[4]",
    "M_MAX_TARGET_LENGTH": "33",
    "M_PER_DEVICE_BATCH_SIZE": "2",
    "M_EVAL_PER_DEVICE_BATCH_SIZE": "2",
    "M_STEPS": "4",
    "M_LEARNING_RATE_SCHEDULE_STEPS": "-1",
    "M_EVAL_INTERVAL": "2",
    "M_CHECKPOINT_PERIOD": "2",
    "OMP_NUM_THREADS": "1",
}
Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """Return a function that runs the command with more arguments in a folder with records/."""
    write_records(tmp_path / "records")

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "launch.py"), *COMMAND, *words],
            cwd=tmp_path,
            env={**os.environ, **TINY, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def rows(run: Path, name: str) -> list[dict[str, float]]:
    """Return the entries of metrics.jsonl that have a key with this name."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in found if name in row]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [],
            "warning: the run trains without validation: no path of records contains 'valid' (data.eval_match)",
        ),
        (["eval_split=None"], "neither data.eval_path nor data.eval_match is set"),
        (["eval_split="], "neither data.eval_path nor data.eval_match is set"),
    ],
)
def test_a_folder_of_training_files_alone_is_trained_on(
    words: list[str], said: str, typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "records/pile.tfrecord.valid").unlink()
    ended = typed("run_name=output", *words)
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout + ended.stderr and "completed step: 4," in ended.stdout
    run = tmp_path / "output"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["step"], summary["val_loss"], summary["validates"]) == (4, None, False)
    assert rows(run, "loss") and not rows(run, "val_loss")
    again = typed("run_name=output", *words)
    assert again.returncode == 0 and "is finished." in again.stdout
    measured = typed("run_name=output", *words, "only_eval=True")
    assert measured.returncode == 2 and "eval_split=TEXT" in measured.stderr


def test_none_as_eval_split_trains_on_every_file(typed: Typed, tmp_path: Path) -> None:
    ended = typed("run_name=output", "eval_split=None", M_STEPS="1000")
    assert ended.returncode == 0, ended.stderr
    assert "the data have 11 batches" in ended.stdout  # from 9 + 9 + 4 records


def test_what_needs_a_validation_is_refused_without_files(typed: Typed) -> None:
    ended = typed("run_name=output", "eval_split=None", "target_eval_loss=3")
    assert ended.returncode == 2
    assert "eval.target_loss needs validation files" in ended.stderr and "eval_split=TEXT" in ended.stderr
    every = typed("run_name=output", "eval_split=records/")
    assert every.returncode == 2 and "leaves no files for training: every path contains it" in every.stderr


def test_the_incomplete_last_batch_is_not_evaluated(typed: Typed, tmp_path: Path) -> None:
    """Use batches of 3 and 4 records."""
    ended = typed("run_name=output", M_EVAL_PER_DEVICE_BATCH_SIZE="3")
    assert ended.returncode == 0, ended.stderr
    assert {row["targets"] for row in rows(tmp_path / "output", "val_loss")} == {3 * 32}
    measured = typed("run_name=output", "only_eval=True", M_EVAL_PER_DEVICE_BATCH_SIZE="3")
    assert " 96 targets" in measured.stdout


def test_fewer_records_than_a_batch_train_without_validation(typed: Typed, tmp_path: Path) -> None:
    """Check this, because the program then has no batches and trains until its first evaluation."""
    large, run = {"M_EVAL_PER_DEVICE_BATCH_SIZE": "5"}, tmp_path / "output"
    ended = typed("run_name=output", **large)
    assert ended.returncode == 0, ended.stderr
    said = "a whole batch of 5 records in a group of validation files, got 4 records in all; lower eval.batch_size"
    assert f"warning: the run trains without validation: expected {said}" in ended.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["step"], summary["validates"]) == (4, False) and not rows(run, "val_loss")
    for name, word in (("output", "only_eval=True"), ("other", "target_eval_loss=3")):
        refused = typed(f"run_name={name}", word, **large)
        assert refused.returncode == 2 and said in refused.stderr


def test_each_group_of_evaluation_files_leaves_its_rest_out(typed: Typed, tmp_path: Path) -> None:
    """Use groups of iter_file_nums=2 files with 8 and 4 records, in batches of 3."""
    for name in ("0", "1"):
        copy = (tmp_path / "records/pile.tfrecord.valid").read_bytes()
        (tmp_path / f"records/pile.tfrecord.valid{name}").write_bytes(copy)
    ended = typed("run_name=output", M_EVAL_PER_DEVICE_BATCH_SIZE="3")
    assert ended.returncode == 0, ended.stderr
    assert {row["targets"] for row in rows(tmp_path / "output", "val_loss")} == {(6 + 3) * 32}


def test_a_run_of_an_earlier_version_evaluates_all_records_on(typed: Typed, tmp_path: Path) -> None:
    run = tmp_path / "output"
    assert typed("run_name=output", "train.stop_at=2", M_EVAL_PER_DEVICE_BATCH_SIZE="3").returncode == 75
    saved = json.loads((run / "config.json").read_text())
    assert saved["eval"]["protocol"] == "whole_batches"
    saved["eval"]["protocol"] = "auto"
    (run / "config.json").write_text(json.dumps(saved))
    ended = typed("run_name=output", "train.stop_at=0", M_EVAL_PER_DEVICE_BATCH_SIZE="3")
    assert ended.returncode == 0, ended.stderr
    assert rows(run, "val_loss")[-1]["targets"] == 4 * 32


EVALUATION_TAGS = {
    f"learning/{name}" for name in ("eval_loss", "eval_accuracy", "batch_eval_loss", "batch_eval_accuracy")
}


def test_loaded_weights_are_evaluated_in_a_new_run(typed: Typed, tmp_path: Path) -> None:
    """Check that the source run does not change, and that the new folder may train later."""
    assert typed("run_name=output").returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "output").rglob("*") if path.is_file()}
    for step, key in ((4, "load_parameters_path"), (2, "load_full_state_path")):
        run = tmp_path / f"new{step}"
        ended = typed(f"run_name=new{step}", "only_eval=True", f"{key}=output/checkpoints/{step}")
        assert ended.returncode == 0, ended.stderr
        assert f"started from output/checkpoints/step-{step}\n" in ended.stdout
        (loss,) = (row["val_loss"] for row in rows(tmp_path / "output", "val_loss") if row["step"] == step)
        assert f"step 0: validation loss {loss:.6f}, " in ended.stdout
        values = {
            value.tag: value.simple_value
            for event in events_of(run / "tensorboard")
            for value in event.summary.value
            if event.step == 0
        }
        assert values.keys() > EVALUATION_TAGS and "num_model_parameters" in " ".join(values)
        assert values["learning/eval_loss"] == pytest.approx(loss)
        assert not (run / "checkpoints").exists() and not (run / "config.json").exists()
    assert {path: path.read_bytes() for path in before} == before
    trained = typed("run_name=new4")
    assert trained.returncode == 0 and "completed step: 4," in trained.stdout, trained.stderr


def test_loaded_weights_go_before_those_of_the_run(typed: Typed, tmp_path: Path) -> None:
    assert typed("run_name=output").returncode == 0
    run = tmp_path / "output"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    words = ("run_name=output", "only_eval=True", f"load_parameters_path={run}/checkpoints/2")
    ended = typed(*words)
    assert ended.returncode == 0 and "remove it to evaluate the run" in ended.stdout
    assert {path: path.read_bytes() for path in before} == before
    row = json.loads((run / "evaluations.jsonl").read_text())
    assert row["val_loss"] == rows(run, "val_loss")[0]["val_loss"] and row["targets"] == 4 * 32


def test_an_evaluation_that_cannot_be_leaves_nothing(typed: Typed, tmp_path: Path) -> None:
    for words, part in (
        (["load_parameters_path=nowhere"], "which does not exist"),
        ([], "holds no run"),
        (["load_parameters_path=nowhere", "--ranks=2"], "which one process runs: leave out --ranks"),
    ):
        ended = typed("run_name=new", "only_eval=True", *words)
        assert ended.returncode == 2 and part in ended.stderr, ended.stderr
    assert not (tmp_path / "new").exists()


def write_original_run(folder: Path) -> None:
    """Write the files of the program's run by which it is recognized, without weights."""
    step = folder / "checkpoints/13000"
    (step / "state").mkdir(parents=True)
    (folder / "tensorboard").mkdir()
    (step / "state/manifest.ocdbt").touch()
    state = {
        "seed": 9876,
        "cur_files": ["gs://b/pile.tfrecord.b6", "gs://b/pile.tfrecord.b7"],
        "file_in_data": 3,
        "step_in_file": 120,
        "iter_file_nums": 2,
        "checkpoint_step": 13000,
    }
    for place in (step, step.parent):
        (place / "skip_file_and_step.json").write_text(json.dumps(state))


@pytest.mark.parametrize(
    "words",
    [
        ["run_name=theirs"],
        ["run_name=theirs", "only_eval=True"],
        ["run_name=new", "load_parameters_path=theirs/checkpoints/13000"],
        ["run_name=new", "load_full_state_path=theirs/checkpoints/13000"],
        ["run_name=new", "only_eval=True", "load_parameters_path=theirs/checkpoints/13000/state"],
    ],
)
def test_a_run_of_the_program_is_refused_with_the_way_out(
    words: list[str], typed: Typed, tmp_path: Path
) -> None:
    """Check that the state of its reader identifies it, so that no run silently starts from the first step."""
    write_original_run(tmp_path / "theirs")
    before = sorted(tmp_path.rglob("*"))
    ended = typed(*words)
    assert ended.returncode == 2
    assert "skip_file_and_step.json: checkpoint 13000, 120 batches into file group 3 of 2" in ended.stderr
    assert "docs/orbax-to-safetensors.md" in ended.stderr and "--system=muddformer_jax" in ended.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"checkpoint_step": "x"}', "\0"])
def test_a_damaged_state_of_the_reader_is_named_all_the_same(text: str, tmp_path: Path) -> None:
    write_original_run(tmp_path / "theirs")
    state = reader_state_of(tmp_path / "theirs")
    assert state is not None
    state.write_text(text)
    assert "program (skip_file_and_step.json): its Orbax" in original_run_text("theirs", state)


def test_other_files_of_the_folder_are_left_out(typed: Typed, tmp_path: Path) -> None:
    """Check that files are selected by name, as in the program, and that subfolders are included."""
    records = tmp_path / "records"
    (records / "more").mkdir()
    (records / "pile.tfrecord.b1").rename(records / "more/pile.tfrecord.b1")
    for name in ("README.md", "more/index.json"):
        (records / name).write_text("{}\n")
    ended = typed("run_name=output", M_STEPS="1000")
    assert ended.returncode == 0, ended.stderr
    assert "the data have 9 batches" in ended.stdout
    left = f"warning: 2 files without .tfrecord in their name are left out, {records}/README.md first"
    assert left in ended.stderr
