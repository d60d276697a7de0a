"""The log of MaxText's programs for runs of mudd_core configs: lines, tags, strings, statistics of connections."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_runs
from event_files import events_of, tags_of
from fake_engine import FakeEngine, fake_assembly
from mudd_core import _core
from mudd_core.config import load_config
from mudd_core.engine.accuracy import SAMPLE_ACCURACY
from mudd_core.engine.muddformer_weights import dynamic_weights
from mudd_core.graph.recording import Recorder, running
from mudd_core.models import Batch, muddformer
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.progress import Progress
from near import STORED


def test_every_step_has_its_line_and_every_fifth_its_tags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = fake_runs.config_of("log.style=maxtext", "log.weights=true", "optim.clip=1")
    with Trainer(config, tmp_path, progress=Progress(), assemble=fake_assembly(FakeEngine())) as trainer:
        trainer.fit()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("completed step: ")]
    assert [int(line.split()[2].rstrip(",")) for line in lines] == list(range(1, 21))
    rows = {
        row["step"]: row for row in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    }
    tags = tags_of(tmp_path / "tensorboard")
    assert sorted(tags["learning/loss"]) == [5, 10, 15, 20]
    assert tags["learning/loss"][10] == pytest.approx(rows[10]["loss"], rel=STORED)
    assert tags["learning/raw_grad_norm"][10] == pytest.approx(rows[10]["grad_norm"], rel=STORED)
    assert tags["learning/grad_norm"][10] == pytest.approx(min(1.0, rows[10]["grad_norm"]), rel=STORED)
    assert tags["learning/current_learning_rate"][10] == pytest.approx(rows[10]["lr"], rel=STORED)
    norms = [values[20] for name, values in tags.items() if name.startswith("total_params/")]
    assert norms and tags["learning/param_norm"][20] == pytest.approx(math.hypot(*norms), rel=STORED)
    assert "learning/eval_loss" in tags


def test_the_config_is_written_as_texts(tmp_path: Path) -> None:
    with fake_runs.make(tmp_path, None, "log.style=maxtext") as trainer:
        trainer.fit()
    texts = {
        value.tag: value.tensor.string_val[0].decode()
        for event in events_of(tmp_path / "tensorboard")
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    }
    assert texts["train.steps"] == "20"
    assert int(texts["num_model_parameters"]) > 0


def test_updates_wait_for_weights_of_other_nodes_where_the_log_reads_them(tmp_path: Path) -> None:
    engine = FakeEngine()
    with fake_runs.make(tmp_path / "run", engine, "log.style=maxtext") as trainer:
        trainer.fit()
    assert engine.settled == [4, 9, 14, 19]


def test_tags_and_lines_have_both_accuracies(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "model.n_layer=2",
        "train.seq_len=16",
        "train.batch_size=2",
        "train.steps=5",
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        "log.style=maxtext",
        "eval.max_batches=2",
    ]
    with Trainer(load_config("muddformer/tiny.py", words), tmp_path, progress=Progress()) as trainer:
        trainer.fit()
        metrics = trainer.engine.metrics()
    tags = tags_of(tmp_path / "tensorboard")
    rows = {("val_loss" in row, row["step"]): row for row in fake_runs.rows_of(tmp_path)}
    assert tags["learning/accuracy"] == {5: pytest.approx(metrics[SAMPLE_ACCURACY], rel=STORED)}
    assert rows[False, 5]["accuracy"] == metrics["accuracy"]
    validated = rows[True, 5]
    assert tags["learning/eval_accuracy"][5] == pytest.approx(validated["val_accuracy"], rel=STORED)
    for name, whole in (("loss", validated["val_loss"]), ("accuracy", validated["val_accuracy"])):
        assert tags[f"learning/batch_eval_{name}"][5] == pytest.approx(
            whole, rel=1e-6
        )  # the batches have equal numbers of targets
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("completed step: 5,")]
    assert len(last) == 1 and last[0].endswith(f"accuracy: {metrics[SAMPLE_ACCURACY]:.4f}")
    for stop in ("train.stop_at=3", "train.stop_at=0"):
        with Trainer(load_config("muddformer/tiny.py", [*words, stop]), tmp_path / "parts") as trainer:
            trainer.fit()
    assert shown(fake_runs.rows_of(tmp_path / "parts")) == shown(fake_runs.rows_of(tmp_path))
    assert tags_of(tmp_path / "parts" / "tensorboard")["learning/accuracy"] == tags["learning/accuracy"]


def shown(rows: Any) -> list[Any]:
    return [(row["step"], row.get("accuracy"), row.get("val_accuracy")) for row in rows]


def test_statistics_of_connections_are_those_of_the_updates_own_forward_pass(
    tmp_path: Path, tiny_text: Path
) -> None:
    """Check over the whole batch, with the weights before the update. The statistics change no bit of the run."""
    words = [
        "model.n_layer=2",
        "train.seq_len=32",
        "train.batch_size=4",
        "train.steps=5",
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        "optim.lr=0.01",
    ]
    hashes = []
    for name, more in (("logged", ["log.style=maxtext", "log.weights=true"]), ("plain", [])):
        with Trainer(load_config("muddformer/tiny.py", [*words, *more]), tmp_path / name) as trainer:
            hashes.append(trainer.fit().final_hash)
    assert hashes[0] == hashes[1]
    tags = tags_of(tmp_path / "logged" / "tensorboard")
    with Trainer(load_config("muddformer/tiny.py", [*words, "train.stop_at=4"]), None) as trainer:
        trainer.fit()
        inputs = trainer.engine.batcher.arrays(4 * 4, 4)["inputs"]
        made = dynamic_weights(trainer.model, trainer.model.config, inputs)
        parameters = trainer.model.parameters
        outputs = {layer: block_output(trainer.model, inputs, layer) for layer in range(2)}
        for layer, dynamic in made.items():
            weights = dynamic.reshape(*inputs.shape, -1) + parameters[f"blocks.{layer}.mix.bias"].reshape(-1)
            want = {
                "max": weights.max(),
                "mean": weights.mean(),
                "min": weights.min(),
                "std": weights.std(),
                "norm": np.linalg.norm(weights),
            }
            for name, value in want.items():
                found = tags[f"mudd/dyn_dense_w/{name}/layer_{layer:03d}"]
                # NumPy computes the norm in float32.
                assert found == {5: pytest.approx(float(value), rel=1e-5)}, (name, layer)
            norm = float(np.linalg.norm(outputs[layer]))
            # NumPy computes the norm in float32.
            assert tags[f"mudd/layer_output/norm/layer_{layer:03d}"] == {5: pytest.approx(norm, rel=1e-5)}
    assert len(made) == 2


def block_output(model: Any, inputs: Any, layer: int) -> Any:
    """Return the output of a block in the graph of a whole batch."""
    recorder = Recorder(model.store, training=False, samples=len(inputs), shards=1, capture=["*"])
    with running(recorder):
        hidden = muddformer.model(model.config, Batch(recorder.input("inputs", inputs.shape)), None)
    number = recorder.sown[f"blocks.{layer}.out"].number
    executor = _core.Executor(recorder.graph, model.store, losses=[], keep=sorted({number, hidden.h.number}))
    executor.set("inputs", inputs)
    executor.run()
    return np.array(executor.get(number), np.float64)
