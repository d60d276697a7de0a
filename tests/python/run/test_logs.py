"""log.*: styles, flushing, the second file of rows, text summaries of TensorBoard."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_runs
from event_files import events_of, tags_of
from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError
from mudd_core.config import load_config
from mudd_core.engine.muddformer_weights import dynamic_weights
from mudd_core.graph.recording import Recorder, running
from mudd_core.models import Batch, muddformer
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.event_file import EventFiles
from mudd_core.run.store.run_folder import RunFolder
from near import STORED


def test_rows_are_handed_over_every_so_many_steps(tmp_path: Path) -> None:
    board = EventFiles(RunFolder(tmp_path), flush_every=4)
    seen = []
    for step in range(1, 9):
        board.append({"step": step, "loss": 1.0})
        files = tmp_path / "tensorboard"
        seen.append(len(tags_of(files).get("train/loss", {})) if any(files.iterdir()) else 0)
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8]
    board.close()


def test_the_second_file_of_rows_is_the_first(tmp_path: Path) -> None:
    word = f"log.metrics_file={tmp_path / 'more.jsonl'}"
    with fake_runs.make(tmp_path / "run", None, word, "train.stop_at=7") as trainer:
        trainer.fit()
    with fake_runs.make(tmp_path / "run", None, word) as trainer:
        trainer.fit()
    assert (tmp_path / "more.jsonl").read_bytes() == (tmp_path / "run" / "metrics.jsonl").read_bytes()


def test_a_second_file_of_something_else_or_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(UserError, match="metrics_file: expected a new file"):
        fake_runs.make(tmp_path / "run", None, f"log.metrics_file={tmp_path / 'notes.txt'}")
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
    with pytest.raises(SaveError, match="no/where"):
        fake_runs.make(tmp_path / "run2", None, f"log.metrics_file={tmp_path / 'no' / 'where'}")
    assert not (tmp_path / "run2").exists()


def test_maxtext_has_its_lines_and_every_fifth_step_its_tags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fake_engine import FakeEngine, fake_assembly
    from mudd_core.run.loop.trainer import Trainer
    from mudd_core.run.report.progress import Progress

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


def test_maxtext_writes_its_config_as_texts(tmp_path: Path) -> None:
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


def test_ours_says_nothing_more(tmp_path: Path) -> None:
    with fake_runs.make(tmp_path) as trainer:
        trainer.fit()
    assert not [tag for tag in tags_of(tmp_path / "tensorboard") if not tag.startswith(("train/", "valid/"))]


def test_statistics_of_connections_are_those_of_the_updates_own_forward_pass(
    tmp_path: Path, tiny_text: Path
) -> None:
    """Over the whole batch, with the weights before the update; they change no bit of the run."""
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
                # NumPy sums a norm in float32.
                assert found == {5: pytest.approx(float(value), rel=1e-5)}, (name, layer)
            norm = float(np.linalg.norm(outputs[layer]))
            # NumPy sums a norm in float32.
            assert tags[f"mudd/layer_output/norm/layer_{layer:03d}"] == {5: pytest.approx(norm, rel=1e-5)}
    assert len(made) == 2


def block_output(model: Any, inputs: Any, layer: int) -> Any:
    """What a block gives, in the graph of a whole batch."""
    recorder = Recorder(model.store, training=False, samples=len(inputs), shards=1, capture=["*"])
    with running(recorder):
        hidden = muddformer.model(model.config, Batch(recorder.input("inputs", inputs.shape)), None)
    number = recorder.sown[f"blocks.{layer}.out"].number
    executor = _core.Executor(recorder.graph, model.store, losses=[], keep=sorted({number, hidden.h.number}))
    executor.set("inputs", inputs)
    executor.run()
    return np.array(executor.get(number), np.float64)
