"""Lines, tags and metrics_file of TokenFormer's program, as written by a command of its document."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import documents
import fake_runs
from document_sizes import texts, with_keys, write_lines
from event_files import tags_of
from fake_engine import FakeEngine, fake_assembly
from maxtext_commands import NUMBER, TINY, objects, run
from mudd_core.config import TokenFormerConfig
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.progress import Progress
from near import STORED

TYPED = """
    run_name=R base_output_directory= grain_train_files=train* grain_eval_files=validation* grain_worker_count=2
    tokenizer_path=bytes per_device_batch_size=4 eval_per_device_batch_size=4 eval_interval=4 checkpoint_period=2
    steps=6 slot_num=8
"""


def tokenformer(folder: Path, *more: str) -> list[str]:
    """Return the document's first command on the data in this folder."""
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
    """Check every step, also after a stop and a resume; metrics_file is a folder."""
    words = tokenformer(tmp_path, "metrics_file=logs")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "results.txt").write_text("a note of the user\n")
    run([*words, "train.stop_at=3"], tmp_path, TINY, code=75)
    assert len(objects(tmp_path / "logs" / "train_results.txt")) == 3
    with (tmp_path / "logs" / "train_results.txt").open("a") as file:  # written by a process that was killed
        file.write('{"learning/loss": 9.0, "step": 4.0, "run_name": "R"}\n{"learn')
    with (tmp_path / "logs" / "results.txt").open("a") as file:
        file.write("Step: 4; eval_loss: 9.0\n")
    run([*words, "train.stop_at=0"], tmp_path, TINY)
    tags = tags_of(tmp_path / "R" / "tensorboard")
    written = objects(tmp_path / "logs" / "train_results.txt")
    assert [row["step"] for row in written] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    names = [name for name in tags if name.startswith(("learning/", "perf/", "total_params/", "mudd/"))]
    assert sorted(names) == [
        "learning/current_learning_rate",
        "learning/grad_norm",
        "learning/loss",
        "learning/param_norm",
        "learning/pre_grad_norm",
        "learning/raw_grad_norm",
        "learning/skip_step",
        "learning/upated_pre_grad_norm",
        "perf/per_device_tflops",
        "perf/per_device_tflops_per_sec",
        "perf/step_time_seconds",
    ]
    for row in written:
        assert set(row) == {*names, "step", "run_name"} and row["run_name"] == "R"
        assert {name: row[name] for name in names} == {
            name: pytest.approx(tags[name][int(row["step"])], rel=STORED) for name in names
        }
    assert set(tags["learning/skip_step"].values()) == {0.0}
    before = [row["learning/pre_grad_norm"] for row in written]
    raw = [row["learning/raw_grad_norm"] for row in written]
    # a new process starts from this value again, as in the program
    assert before == [1000.0, *raw[:2], 1000.0, *raw[3:5]]
    seconds, speed = written[5]["perf/step_time_seconds"], written[5]["perf/per_device_tflops_per_sec"]
    assert seconds == pytest.approx(written[5]["perf/per_device_tflops"] / speed)
    rows = [row for row in objects(tmp_path / "R" / "metrics.jsonl") if "val_loss" in row]
    results = (tmp_path / "logs" / "results.txt").read_text().splitlines()
    lines = [f"Step: {row['step']}; eval_loss: {row['val_loss']}" for row in rows]
    assert results == ["a note of the user", *lines] and len(rows) == 2


def test_a_skipped_update_is_a_tag_of_tokenformers_program(tmp_path: Path) -> None:
    words = ["log.style=maxtext", "log.metrics_file=" + str(tmp_path / "logs"), "train.steps=4"]
    config = replace(fake_runs.config_of(*words), model=TokenFormerConfig())
    engine = FakeEngine(bad=frozenset({2}))
    with Trainer(config, tmp_path / "run", assemble=fake_assembly(engine)) as trainer:
        trainer.fit()
    written = objects(tmp_path / "logs" / "train_results.txt")
    assert [row["learning/skip_step"] for row in written] == [0.0, 0.0, 1.0, 0.0]
    assert written[2]["learning/loss"] is None  # a loss that is not finite is null
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
    """Check that metrics_file has a copy of metrics.jsonl, and that the printed lines are mudd_core's."""
    words = ["log.metrics_file=" + str(tmp_path / "m.jsonl")]
    config = replace(fake_runs.config_of(*words), model=TokenFormerConfig())
    with Trainer(
        config, tmp_path / "run", progress=Progress(), assemble=fake_assembly(FakeEngine())
    ) as trainer:
        trainer.fit()
    assert (tmp_path / "m.jsonl").read_bytes() == (tmp_path / "run" / "metrics.jsonl").read_bytes()
    printed = capsys.readouterr().out
    assert "completed step" not in printed and "step 8: validation loss " in printed
