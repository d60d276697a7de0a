"""Lines, tags and metrics_file of MUDDFormer's program, as written by a command of its document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import documents
from document_sizes import with_keys, write_records
from event_files import tags_of
from maxtext_commands import NUMBER, TINY, objects, run
from near import STORED

MUDD = TINY | {
    "BASE_MLP_DIM": "256",
    "PER_DEVICE_BATCH_SIZE": "2",
    "EVAL_PER_DEVICE_BATCH_SIZE": "2",
    "EVAL_INTERVAL": "5",
    "EVAL_LOOP_NUM_BATCHES": "2",
    "DYNAMIC_DENSE_HIDDEN_EXPAND": "[1,4]",
    "LEARNING_RATE_SCHEDULE_STEPS": "9",
}


def muddformer(*more: str) -> list[str]:
    """Return the document's command on the records in this folder."""
    words = next(
        command.words for command in documents.commands("muddformer") if "hardware=tpu" in command.words
    )
    return [*with_keys(words, "dataset_path=records run_name=R"), *more]


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
    # The line has four digits.
    assert one and float(one[2]) == pytest.approx(int(one[3]) / 64, abs=1e-4)
    two = re.fullmatch(batch.replace("eval_step: 1", "eval_step: 2"), lines[first + 1])
    assert two
    loss = (float(one[1]) + float(two[1])) / 2  # two batches with equal numbers of targets
    average = re.fullmatch(
        r"average loss after step=5, eval_loss=(\d\.\d{4}), aux_loss=0\.0000, accuracy=(\d\.\d{4}), {6}"
        r"batch_eval_loss=(\d\.\d{4}), batch_accuracy=(\d\.\d{4}) total_weights=128\.0",
        lines[first + 2],
    )
    # The line has four digits.
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
    numbers = {
        name: values
        for name, values in theirs.items()
        if name.startswith(("learning/", "perf/", "total_params/", "mudd/"))
    }
    assert all(list(values) == [5] for values in numbers.values())
    assert {"mudd/dyn_dense_w/std/layer_001", "mudd/layer_output/norm/layer_000"} <= set(numbers)
    (written,) = objects(tmp_path / "m.jsonl")
    assert written.pop("step") == 5.0 and written.pop("run_name") == "R"
    assert set(written) == set(numbers)
    assert written == {name: pytest.approx(values[5], rel=STORED) for name, values in numbers.items()}
    assert {name.split("/")[1] for name in numbers if name.startswith("learning/")} == {
        "loss",
        "aux_loss",
        "accuracy",
        "grad_norm",
        "raw_grad_norm",
        "param_norm",
        "train_batch_weights",
        "current_learning_rate",
    }
    assert written["learning/train_batch_weights"] == 64.0
    tokens, inner = 2 * 33, 256  # per device and for all records; wi_0, wi_1 and wo
    layer = (
        6 * tokens * inner * 16 + 2 * tokens * 16 * 6 * 8 + 4 * 2 * 33**2 * 2 * 8 + 2 * tokens * 16 * 2 * 8
    )
    flops = 3 * (2 * layer + 2 * tokens * 16 * 257)  # without the connections, as the program counts
    assert written["perf/per_device_tflops"] == pytest.approx(flops / 1e12)
    rate = written["perf/per_device_tflops_per_sec"] / written["perf/per_device_tflops"]
    assert written["perf/step_time_seconds"] == pytest.approx(rate)  # steps per second, as in the program


def test_norms_have_the_names_of_muddformers_program(tmp_path: Path) -> None:
    """Compare with an export of the same weights."""
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
    # NumPy computes the norm in float32.
    assert found == {
        name: pytest.approx(float(np.linalg.norm(array)), rel=1e-5) for name, array in weights.items()
    }
    assert tags["learning/param_norm"][5] == pytest.approx(
        float(np.linalg.norm(list(found.values()))), rel=STORED
    )


def test_ranks_write_the_statistics_of_the_whole_batch(tmp_path: Path) -> None:
    """Check also that reading the statistics does not change the bits of the run."""
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
            assert two[name] == pytest.approx(value, rel=STORED), name
    assert two["perf/per_device_tflops"] == pytest.approx(one["perf/per_device_tflops"] / 2)
