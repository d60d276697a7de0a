"""A run that diverged or cannot learn prints a warning and is never called best; a healthy run prints nothing."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from loss_goldens import FAMILIES, FOLDER
from mudd_core.cli import main
from mudd_core.config import Config, DataConfig, EvalConfig, OptimConfig, TrainConfig
from mudd_core.run.loop.learning_watch import UNTRAINED, LearningWatch
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.records.facts import vocabulary_facts, vocabulary_in_use
from mudd_core.run.report.page.run_page import run_page
from mudd_core.run.store.metrics import RecordedValidations
from mudd_core.run.store.run_folder import RunFolder
from page_runs import records_of
from small_models import CASES

VOCABULARY = 257
LN = math.log(VOCABULARY)


def record(step: int, loss: float, grad: float = 1.0, targets: int = 8, **more: object) -> StepRecord:
    found = StepRecord(step, step, loss, 1e-3, grad, 1.0, 0.1, 1.0, targets=targets)
    return dataclasses.replace(found, **more)  # type: ignore[arg-type]


def validation(step: int, loss: float, targets: int = 9) -> Validation:
    return Validation(step, loss, None, targets, 0.1)


class Watched:
    """A watch, with the warnings that it has given by step."""

    def __init__(self, *words: str, vocabulary: int = VOCABULARY) -> None:
        self.told: list[tuple[int, str]] = []
        config = mc.load_config("tiny.py", ["optim.warmup_steps=0", *words])
        self.watch = LearningWatch(
            config, lambda: vocabulary, lambda text, step: self.told.append((step, text))
        )

    def take(self, steps: range, loss: float, every: int = 1, **more: object) -> list[int]:
        """Add these updates. Return the steps of all warnings so far."""
        for step in steps:
            self.watch.took_step(record(step, loss, **more), logged=step % every == 0)  # type: ignore[arg-type]
        return self.steps

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.told]


def test_the_mean_of_ten_logged_updates_counts_once_the_warm_up_is_over() -> None:
    assert Watched().take(range(1, 200), LN - 0.01) == []
    assert Watched().take(range(1, 200), LN + 0.01) == [30]  # the mean over steps 21 to 30
    assert Watched().take(range(1, 1000), LN + 0.01, every=10) == [120]
    assert Watched("optim.warmup_steps=50").take(range(1, 200), 99.0) == [60]
    found = Watched()
    found.take(range(1, 21), 99.0)
    found.take(range(21, 26), LN - 1)
    assert found.take(range(26, 31), LN + 0.9) == []  # the mean is below the limit
    assert found.take(range(31, 33), LN + 0.9) == [31]
    assert found.told[0][1].startswith("step 31: the mean loss of the last 10 logged updates, 5.6")
    assert "5.5491 (ln 257), the loss of guessing" in found.told[0][1] and found.watch.warnings == [
        found.told[0][1]
    ]


def test_an_auxiliary_loss_and_skipped_updates_do_not_count() -> None:
    assert Watched().take(range(1, 200), LN + 1, metrics={"aux_loss": 1.5}) == []
    assert Watched().take(range(1, 200), 99.0, skipped=True) == []
    assert Watched(vocabulary=0).take(range(1, 200), 99.0) == []  # the vocabulary is unknown


def test_random_tokens_may_stay_at_the_loss_of_guessing() -> None:
    words = ("data.pipeline=synthetic",)
    assert Watched(*words).take(range(1, 200), LN + 0.01) == []
    assert Watched(*words).take(range(1, 200), LN + UNTRAINED + 0.01) == [30]


@pytest.mark.parametrize(("steps", "every"), [(5, 1), (20, 10), (60, 100), (1, 1)])
def test_the_end_of_a_short_run_counts_too(steps: int, every: int) -> None:
    diverged, untrained = Watched(), Watched()
    for found, loss in ((diverged, LN + 2), (untrained, LN + 0.9)):
        found.take(range(1, steps), loss, every)
        found.watch.took_step(record(steps, loss), logged=True)
        found.watch.validated(validation(steps, loss))
        found.watch.ended(steps)
    assert diverged.steps == ([steps, steps])
    assert untrained.steps == ([steps, steps] if steps > 20 else [])


def test_validations_count_after_the_warm_up_and_need_targets() -> None:
    found = Watched()
    found.watch.validated(validation(0, 99.0))
    found.watch.validated(validation(20, 99.0))
    found.watch.validated(validation(40, LN - 0.1))
    assert not found.told
    found.watch.validated(validation(60, LN + 0.1))
    found.watch.validated(validation(80, LN + 0.1))
    found.watch.validated(validation(90, 0.0, targets=0))
    assert found.steps == [60, 90] and "validation contributes to the loss" in found.told[1][1]


def test_a_gradient_of_zero_is_named_at_once() -> None:
    found = Watched()
    found.take(range(1, 4), 1.0, grad=0.0)
    assert found.steps == [1] and "the gradient is exactly 0" in found.told[0][1]


def test_batches_without_targets_are_named() -> None:
    found = Watched()
    found.take(range(1, 9), 0.0, grad=0.0, targets=0)
    found.take(range(9, 10), 1.0)
    assert found.take(range(10, 19), 0.0, grad=0.0, targets=0) == []  # one of ten batches has targets
    assert found.take(range(19, 30), 0.0, grad=0.0, targets=0) == [19]
    short = Watched()
    short.take(range(1, 4), 0.0, grad=0.0, targets=0)
    short.watch.ended(3)
    assert (
        short.steps == [3] and "no target of the last 3 batches contributes to the loss" in short.told[0][1]
    )


def test_a_rewind_and_a_resume_keep_the_path_of_the_run() -> None:
    found = Watched()
    found.take(range(1, 30), 99.0)
    found.take(range(22, 31), LN - 1)  # the run was rewound to step 21
    found.watch.ended(30)
    assert found.steps == [30]  # (99 + 9 (ln 257 - 1)) / 10
    resumed = Watched()
    resumed.watch.recall(
        RecordedValidations([], validation(40, 9.0), [(step, 9.0) for step in range(31, 41)])
    )
    resumed.watch.ended(40)
    assert resumed.steps == [40, 40]


def test_the_vocabulary_in_use_is_that_of_the_text() -> None:
    assert vocabulary_facts(300, 300) == {"vocab_size": 300}
    assert vocabulary_in_use(vocabulary_facts(50304, 257)) == 257
    assert vocabulary_in_use({"vocab_size": 300}) == 300 and vocabulary_in_use({}) == 0


SMALL = (
    "--config=tiny.py",
    "data.tokenizer=bytes",
    "model.d_model=16",
    "model.n_layer=1",
    "model.n_head=2",
    "model.d_ff=32",
    "train.seq_len=16",
    "train.batch_size=4",
    "train.threads=1",
    "train.log_every=2",
    "optim.warmup_steps=2",
    "eval.max_batches=1",
)


def trained(run: Path, *words: str) -> int:
    return main([*SMALL, f"--workdir={run}", *words])


def warnings_of(run: Path) -> tuple[list[str], list[str]]:
    """Return the warnings in the summary, and the messages of the events after the start."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    told = [event["text"] for event in events if event["event"] == "warning" and "step" in event]
    found = json.loads((run / "summary.json").read_text())["warnings"]
    assert isinstance(found, list)
    return found, told


def test_a_diverged_run_ends_with_warnings_and_without_a_best_step(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, words = tmp_path / "run", (f"data.path={tiny_text}", f"data.cache_dir={tmp_path}/cache")
    words += ("optim.lr=3", "optim.schedule=constant", "train.steps=60", "train.eval_every=30")
    assert trained(run, *words, "train.stop_at=50") == 75
    assert trained(run, *words, "train.stop_at=0") == 0
    out, err = capsys.readouterr()
    summary, events = warnings_of(run)
    assert len(summary) == 2 and events[-2:] == summary
    assert "mean loss of the last 10" in "".join(summary) and "validation loss" in "".join(summary)
    for text in summary:
        assert f"warning: {text}" in err and f"  warning  {text}" in out
    assert main(["report", f"--workdir={run}"]) == 0
    out = capsys.readouterr().out
    assert "best validation" not in out and "none is marked as best" in out
    assert "best validation" not in run_page(records_of(RunFolder(run)))
    facts = json.loads((run / "run.json").read_text())
    del facts["vocab_size"]  # then the loss of random guessing is unknown
    (run / "run.json").write_text(json.dumps(facts))
    assert main(["report", f"--workdir={run}"]) == 0 and "(best validation)" in capsys.readouterr().out


def test_data_without_targets_end_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, run, draw = tmp_path / "data", tmp_path / "run", np.random.default_rng(1)
    folder.mkdir()
    for name, count in (("train", 32), ("validation", 8)):
        ids = draw.integers(0, 100, (count, 16))
        masks = {"attention_mask": np.ones_like(ids).tolist(), "labels": np.full_like(ids, -100).tolist()}
        pq.write_table(pa.table({"input_ids": ids.tolist(), **masks}), folder / f"{name}.parquet")
    words = ("data.pipeline=features", f"data.path={folder}", "data.eval_match=validation", "train.steps=12")
    more = (
        "model.vocab_size=100",
        f"data.cache_dir={tmp_path}/cache",
        "eval.target_loss=1",
        "train.eval_every=4",
    )
    trained(run, *words, *more, "eval.protocol=features")
    summary, events = warnings_of(run)
    assert summary == events and [text.split(":")[0] for text in summary] == ["step 4", "step 10"]
    assert "no target of the last 10 batches contributes to the loss" in capsys.readouterr().err
    found = json.loads((run / "summary.json").read_text())
    assert found["best_step"] is None and not found["reached"] and found["step"] == 12


@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_goldens_print_nothing(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(
        model=dataclasses.replace(CASES[family][0], vocab_size=0, max_seq_len=24),
        data=DataConfig(path=str(FOLDER / "text"), tokenizer="bytes", cache_dir=str(tmp_path)),
        train=TrainConfig(
            steps=36,
            batch_size=4,
            seq_len=24,
            seed=11,
            threads=1,
            log_every=1,
            eval_every=6,
            micro_batch_size=2,
        ),
        optim=OptimConfig(lr=3e-3, warmup_steps=3),
        eval=EvalConfig(max_batches=1, at_start=True),
    )
    for steps in (36, 3):
        with mc.Trainer(config.replace("train.steps", steps)) as trainer:
            assert trainer.fit(progress=False).warnings == ()
    assert "loss" not in capsys.readouterr().err
