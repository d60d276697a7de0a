"""Lines, tags and metrics_file of the two MaxText programs, as a command of their documents leaves them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import documents
import fake_runs
from document_sizes import texts, with_keys, write_lines, write_records
from fake_engine import FakeEngine, fake_assembly
from mudd_core.config import TokenFormerConfig
from mudd_core.run.progress import Progress
from mudd_core.run.trainer import Trainer
from test_logs import tags_of
from tiny_run import ROOT

NUMBER = r"\d+\.\d{3}"
TINY = {
    "VOCAB_SIZE": "257", "BASE_EMB_DIM": "16", "BASE_NUM_QUERY_HEADS": "2", "BASE_NUM_KV_HEADS": "2", "HEAD_DIM": "8",
    "BASE_NUM_DECODER_LAYERS": "2", "MAX_TARGET_LENGTH": "33",
}  # fmt: skip
MUDD = TINY | {
    "BASE_MLP_DIM": "256", "PER_DEVICE_BATCH_SIZE": "2", "EVAL_PER_DEVICE_BATCH_SIZE": "2", "EVAL_INTERVAL": "5",
    "EVAL_LOOP_NUM_BATCHES": "2", "DYNAMIC_DENSE_HIDDEN_EXPAND": "[1,4]", "LEARNING_RATE_SCHEDULE_STEPS": "9",
}  # fmt: skip


def run(words: list[str], folder: Path, variables: dict[str, str], code: int = 0) -> list[str]:
    """The lines that a fresh process prints for a command, with M_ variables beside it."""
    surroundings = os.environ | {f"M_{name}": value for name, value in variables.items()}
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    ended = subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def muddformer(*more: str) -> list[str]:
    """The document's command on the records of this folder."""
    words = next(
        command.words for command in documents.commands("muddformer") if "hardware=tpu" in command.words
    )
    return [*with_keys(words, "dataset_path=records run_name=R"), *more]


def objects(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def index_of(lines: list[str], begin: str) -> int:
    return next(i for i, line in enumerate(lines) if line.startswith(begin))


def test_lines_of_muddformers_program(tmp_path: Path) -> None:
    write_records(tmp_path / "records")
    lines = run(muddformer(), tmp_path, MUDD)
    steps = [line for line in lines if line.startswith("completed step: ")]
    pattern = rf"completed step: (\d+), steps/s: {NUMBER}, TFLOP/s/device: {NUMBER}, loss: {NUMBER}, aux_loss: 0.000, "
    found = [re.fullmatch(pattern + r"accuracy: \d\.\d{4}", line) for line in steps]
    assert [int(one[1]) for one in found if one] == list(range(1, 10)) and all(found)
    first = index_of(lines, "eval_step: 1 ")
    batch = r"eval_step: 1 loss: (\d\.\d{4}) aux_loss: 0\.0000 accuracy: (\d\.\d{4})  {10}correct: (\d+)\.0 "
    batch += rf"weight: 64\.0 take: {NUMBER}s"
    one = re.fullmatch(batch, lines[first])
    assert one and float(one[2]) == pytest.approx(int(one[3]) / 64, abs=1e-4)
    two = re.fullmatch(batch.replace("eval_step: 1", "eval_step: 2"), lines[first + 1])
    assert two
    loss = (float(one[1]) + float(two[1])) / 2  # of two batches with as many targets
    average = re.fullmatch(
        r"average loss after step=5, eval_loss=(\d\.\d{4}), aux_loss=0\.0000, accuracy=(\d\.\d{4}), {6}"
        r"batch_eval_loss=(\d\.\d{4}), batch_accuracy=(\d\.\d{4}) total_weights=128\.0",
        lines[first + 2],
    )
    assert average and float(average[1]) == pytest.approx(loss, abs=2e-4) == float(average[3])
    assert re.fullmatch(
        r"Write step 5 eval loss: \d\.\d{6} accuracy: \d\.\d{4} to tensorboard ", lines[first + 3]
    )
    assert first > index_of(lines, "completed step: 5,") and first < index_of(lines, "completed step: 6,")


def test_tags_and_objects_of_muddformers_program(tmp_path: Path) -> None:
    write_records(tmp_path / "records")
    run(muddformer("metrics_file=m.jsonl"), tmp_path, MUDD)
    tags = tags_of(tmp_path / "R" / "tensorboard")
    learning = {
        name: values for name, values in tags.items() if "/eval_" not in name and "/batch_eval" not in name
    }
    theirs = {name: values for name, values in learning.items() if not name.startswith(("train/", "valid/"))}
    numbers = {name: values for name, values in theirs.items() if name.startswith(
        ("learning/", "perf/", "total_params/", "mudd/")
    )}  # fmt: skip
    assert all(list(values) == [5] for values in numbers.values())
    assert {"mudd/dyn_dense_w/std/layer_001", "mudd/layer_output/norm/layer_000"} <= set(numbers)
    (written,) = objects(tmp_path / "m.jsonl")
    assert written.pop("step") == 5.0 and written.pop("run_name") == "R"
    assert set(written) == set(numbers)
    assert written == {name: pytest.approx(values[5], rel=1e-6) for name, values in numbers.items()}
    assert {name.split("/")[1] for name in numbers if name.startswith("learning/")} == {
        "loss", "aux_loss", "accuracy", "grad_norm", "raw_grad_norm", "param_norm", "train_batch_weights",
        "current_learning_rate",
    }  # fmt: skip
    assert written["learning/train_batch_weights"] == 64.0
    tokens, inner = 2 * 33, 256  # per device, of all records; wi_0, wi_1 and wo
    layer = (
        6 * tokens * inner * 16 + 2 * tokens * 16 * 6 * 8 + 4 * 2 * 33**2 * 2 * 8 + 2 * tokens * 16 * 2 * 8
    )
    flops = 3 * (2 * layer + 2 * tokens * 16 * 257)  # as the program counts them: without the connections
    assert written["perf/per_device_tflops"] == pytest.approx(flops / 1e12)
    rate = written["perf/per_device_tflops_per_sec"] / written["perf/per_device_tflops"]
    assert written["perf/step_time_seconds"] == pytest.approx(rate)  # steps a second, as there


def test_norms_have_the_names_of_muddformers_program(tmp_path: Path) -> None:
    """Those of an export of the same weights."""
    write_records(tmp_path / "records")
    run(muddformer("steps=5"), tmp_path, MUDD)
    run(["export", "--workdir=R", "--to=E", "--system=muddformer_jax"], tmp_path, {})
    weights = load_file(next((tmp_path / "E").glob("*.safetensors")))
    tags = tags_of(tmp_path / "R" / "tensorboard")
    found = {
        name.removeprefix("total_params/"): values[5]
        for name, values in tags.items()
        if "total_params" in name
    }
    assert "decoder/layers_0/self_attention/query/kernel" in found
    assert found == {
        name: pytest.approx(float(np.linalg.norm(array)), rel=1e-5) for name, array in weights.items()
    }
    assert tags["learning/param_norm"][5] == pytest.approx(
        float(np.linalg.norm(list(found.values()))), rel=1e-6
    )


TYPED = """
    run_name=R base_output_directory= grain_train_files=train* grain_eval_files=validation* grain_worker_count=2
    tokenizer_path=bytes per_device_batch_size=4 eval_per_device_batch_size=4 eval_interval=4 checkpoint_period=2
    steps=6 slot_num=8
"""


def tokenformer(folder: Path, *more: str) -> list[str]:
    """The document's first command on texts in this folder."""
    write_lines(folder / "train.jsonl", texts(80))
    write_lines(folder / "validation.jsonl", texts(12))
    return [*with_keys(documents.commands("tokenformer")[0].words, TYPED), "data.cache_dir=cache", *more]


def test_lines_of_tokenformers_program(tmp_path: Path) -> None:
    lines = run(tokenformer(tmp_path), tmp_path, TINY)
    steps = [line for line in lines if line.startswith("completed step: ")]
    pattern = rf"completed step: (\d+), seconds: {NUMBER}, TFLOP/s/device: {NUMBER}, loss: {NUMBER}"
    found = [re.fullmatch(pattern, line) for line in steps]
    assert [int(one[1]) for one in found if one] == list(range(1, 7)) and all(found)
    begin = lines.index(">>> evaluation starts: ")
    end = next(i for i, line in enumerate(lines) if line.startswith(">>> evaluation ends"))
    batches = end - begin - 2
    assert batches > 1 and lines[end] == f">>> evaluation ends with {batches} steps!!!"
    assert lines[begin + 1 : end - 1] == [f">>> eval step:  {number}" for number in range(batches)]
    loss = re.fullmatch(
        r"average loss after step=4: eval_loss=(\d\.\d+), total_weights=(\d+)\.0", lines[end - 1]
    )
    rows = objects(tmp_path / "R" / "metrics.jsonl")
    validated = next(row for row in rows if "val_loss" in row)
    assert loss and (float(loss[1]), int(loss[2])) == (validated["val_loss"], validated["targets"])
    assert "saved a checkpoint at step 2" in lines
    assert not any(line.startswith("step 4: validation loss") for line in lines)


def test_tags_and_files_of_tokenformers_program(tmp_path: Path) -> None:
    """Every step, also where the run is stopped and resumed; metrics_file is a folder."""
    words = tokenformer(tmp_path, "metrics_file=logs")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "results.txt").write_text("a note of the user\n")
    run([*words, "train.stop_at=3"], tmp_path, TINY, code=75)
    assert len(objects(tmp_path / "logs" / "train_results.txt")) == 3
    with (tmp_path / "logs" / "train_results.txt").open("a") as file:  # of a process that was killed
        file.write('{"learning/loss": 9.0, "step": 4.0, "run_name": "R"}\n{"learn')
    with (tmp_path / "logs" / "results.txt").open("a") as file:
        file.write("Step: 4; eval_loss: 9.0\n")
    run([*words, "train.stop_at=0"], tmp_path, TINY)
    tags = tags_of(tmp_path / "R" / "tensorboard")
    written = objects(tmp_path / "logs" / "train_results.txt")
    assert [row["step"] for row in written] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    names = [name for name in tags if name.startswith(("learning/", "perf/", "total_params/", "mudd/"))]
    assert sorted(names) == [
        "learning/current_learning_rate", "learning/grad_norm", "learning/loss", "learning/param_norm",
        "learning/pre_grad_norm", "learning/raw_grad_norm", "learning/skip_step", "learning/upated_pre_grad_norm",
        "perf/per_device_tflops", "perf/per_device_tflops_per_sec", "perf/step_time_seconds",
    ]  # fmt: skip
    for row in written:
        assert set(row) == {*names, "step", "run_name"} and row["run_name"] == "R"
        assert {name: row[name] for name in names} == {
            name: pytest.approx(tags[name][int(row["step"])], rel=1e-6) for name in names
        }
    assert set(tags["learning/skip_step"].values()) == {0.0}
    before = [row["learning/pre_grad_norm"] for row in written]
    raw = [row["learning/raw_grad_norm"] for row in written]
    assert before == [1000.0, *raw[:2], 1000.0, *raw[3:5]]  # a new process begins anew, as there
    seconds, speed = written[5]["perf/step_time_seconds"], written[5]["perf/per_device_tflops_per_sec"]
    assert seconds == pytest.approx(written[5]["perf/per_device_tflops"] / speed)
    rows = [row for row in objects(tmp_path / "R" / "metrics.jsonl") if "val_loss" in row]
    results = (tmp_path / "logs" / "results.txt").read_text().splitlines()
    assert (
        results == [f"Step: {row['step']}; eval_loss: {row['val_loss']}" for row in rows] and len(rows) == 2
    )


def test_a_skipped_update_is_a_tag_of_tokenformers_program(tmp_path: Path) -> None:
    words = ["log.style=maxtext", "log.metrics_file=" + str(tmp_path / "logs"), "train.steps=4"]
    config = replace(fake_runs.config_of(*words), model=TokenFormerConfig())
    engine = FakeEngine(bad=frozenset({2}))
    with Trainer(config, tmp_path / "run", assemble=fake_assembly(engine)) as trainer:
        trainer.fit()
    written = objects(tmp_path / "logs" / "train_results.txt")
    assert [row["learning/skip_step"] for row in written] == [0.0, 0.0, 1.0, 0.0]
    assert written[2]["learning/loss"] is None  # not a number
    kept = [row["learning/upated_pre_grad_norm"] for row in written]
    assert kept[2] == kept[1] == written[1]["learning/raw_grad_norm"]
    assert written[3]["learning/pre_grad_norm"] == kept[1]


@pytest.mark.parametrize("kind", ["a file", "below a file", "of something else"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_run(kind: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine\n")
    folder = {"a file": "precious", "below a file": "precious/logs", "of something else": "logs"}[kind]
    if kind == "of something else":
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "train_results.txt").write_text("mine\n")
    words = tokenformer(tmp_path, f"metrics_file={folder}")
    run(words, tmp_path, TINY, code=2 if kind == "of something else" else 74)
    assert not (tmp_path / "R").exists() and (tmp_path / "precious").read_text() == "mine\n"


def test_a_run_of_our_own_style_keeps_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file of metrics_file is a copy of metrics.jsonl, and the lines are ours."""
    words = ["log.metrics_file=" + str(tmp_path / "m.jsonl")]
    config = replace(fake_runs.config_of(*words), model=TokenFormerConfig())
    with Trainer(
        config, tmp_path / "run", progress=Progress(), assemble=fake_assembly(FakeEngine())
    ) as trainer:
        trainer.fit()
    assert (tmp_path / "m.jsonl").read_bytes() == (tmp_path / "run" / "metrics.jsonl").read_bytes()
    printed = capsys.readouterr().out
    assert "completed step" not in printed and "step 8: validation loss " in printed


def test_ranks_write_the_statistics_of_the_whole_batch(tmp_path: Path) -> None:
    """With the bits of a run that does not read them."""
    write_records(tmp_path / "records")
    run(muddformer("metrics_file=one.jsonl"), tmp_path, MUDD)
    words = [word.replace("run_name=R", "run_name=S") for word in muddformer("metrics_file=two.jsonl")]
    run(["--ranks=2", *words], tmp_path, MUDD)
    plain = [word.replace("run_name=R", "run_name=P") for word in muddformer("record_internal_nn_metrics=0")]
    run(plain, tmp_path, MUDD)
    found = [json.loads((tmp_path / name / "summary.json").read_text()) for name in "RSP"]
    assert len({summary["final_hash"] for summary in found}) == 1
    assert not any(name.startswith("mudd/") for name in tags_of(tmp_path / "P" / "tensorboard"))
    one, two = (objects(tmp_path / name)[0] for name in ("one.jsonl", "two.jsonl"))
    assert set(one) == set(two)
    for name, value in one.items():
        if name.startswith(("mudd/", "total_params/", "learning/")):
            assert two[name] == pytest.approx(value, rel=1e-6), name
    assert two["perf/per_device_tflops"] == pytest.approx(one["perf/per_device_tflops"] / 2)
