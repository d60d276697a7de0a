"""log.style=mu_transformer and jax_lm: the exact lines."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fake_runs
from mudd_core.config import Config, EvalConfig, LogConfig, LossConfig, MupConfig, TrainConfig
from mudd_core.programs.jax_lm.style import clock
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.records.machine import Peak
from mudd_core.run.report.style import RunFacts, style_of
from mudd_core.run.store.run_folder import RunFolder

TRAIN = r"^\[TRAIN\] epoch: \d+ step: \d+/\d+ loss: \d+\.\d{4} ppl: \d+\.\d{2} ETA \d{2,}:\d{2}:\d{2} ?$"
EVAL = r"^\[EVAL\] epoch: \d+ step: \d+/\d+ loss: \d+\.\d{4} ppl: \d+\.\d{2} ?$"
STEP = 0.25  # seconds
BATCH, LENGTH = 4, 8


def facts(config: Config) -> RunFacts:
    return RunFacts(config, RunFolder(Path("artifacts")), 600.0, Peak(lambda: 1e6), lambda: 100)


def config_of(
    style: str, *, compat: bool = False, steps: int = 40, log_every: int = 5, epochs: int = 2
) -> Config:
    return Config(
        model=MupConfig(d_model=16, d_head=8, qk_scale=0.125, n_layer=2),
        train=TrainConfig(steps=steps, batch_size=BATCH, seq_len=LENGTH, log_every=log_every, epochs=epochs),
        loss=LossConfig(normalize="all_slots"),
        log=LogConfig(style=style, compat=compat),
        eval=EvalConfig(),
    )


def record(step: int, loss: float, targets: int = BATCH * LENGTH) -> StepRecord:
    tokens = BATCH * LENGTH
    return StepRecord(
        step, step * tokens, loss, 1e-3, 1.0, tokens / STEP, 0.5, 7.0 + step * STEP, targets=targets
    )


def validation(step: int, loss: float) -> Validation:
    return Validation(step, loss, 1.0, 100, 0.5)


def test_train_lines_are_means_over_their_window() -> None:
    style = style_of(facts(config_of("jax_lm")))
    lines = [line for step in range(1, 41) for line in style.step(record(step, step / 10))]
    assert all(re.match(TRAIN, line) for line in lines) and not style.ours
    assert [line.split()[4] for line in lines] == [f"{step}/40" for step in range(5, 40, 5)]
    assert [line.split()[2] for line in lines] == ["0"] * 3 + ["1"] * 4  # 20 steps per epoch
    first = np.mean([step / 10 for step in range(1, 7)])  # steps 0 to 5
    assert (
        lines[0] == f"[TRAIN] epoch: 0 step: 5/40 loss: {first:.4f} ppl: {math.exp(first):.2f} ETA 00:00:08 "
    )
    second = np.mean([step / 10 for step in range(7, 12)])
    assert f" loss: {second:.4f} ppl: {math.exp(second):.2f} ETA 00:00:07" in lines[1]


def test_compatible_train_lines_have_the_originals_numbers() -> None:
    style = style_of(facts(config_of("jax_lm", compat=True, steps=161045, log_every=100, epochs=5)))
    lines = [line for step in range(1, 302) for line in style.step(record(step, step / 100))]
    assert [line.split()[6] for line in lines] == ["0.0100", "1.0200", "2.0200"]  # for steps 0, 101 and 201
    assert [line.split()[10] for line in lines] == [
        clock((161045 - step) * 25 // 50) for step in (100, 200, 300)
    ]


def test_the_clock_is_that_of_the_document() -> None:
    assert [clock(seconds) for seconds in (83691, 35385, 9, 53)] == [
        "23:14:51",
        "09:49:45",
        "00:00:09",
        "00:00:53",
    ]
    assert clock(360000) == "100:00:00"
    # The two lines in the document.
    assert (161045 - 100) * 26 // 50 == 83691 and (161045 - 200) * 11 // 50 == 35385


def test_eval_save_and_restore_lines() -> None:
    config = config_of("jax_lm", steps=161045, epochs=5)
    late = dataclasses.replace(config.train, eval_every=5000, period_start=1)
    style = style_of(facts(dataclasses.replace(config, train=late)))
    lines = style.validated(validation(161045, 2.7272))
    assert lines == ["[EVAL] epoch: 4 step: 161044/161045 loss: 2.7272 ppl: 15.29 "]
    assert re.match(EVAL, lines[0])
    for step in (7, 5000):
        assert style.saved(step) == ["save checkpoint to artifacts/"]
    assert style.saved(5001) == []
    assert style.validated(validation(5001, 2.0))[1:] == ["save checkpoint to artifacts/"]
    assert style.saved(161045) == []  # after the validation of its step, as in the program
    assert style.validated(validation(161045, 2.7272)) == [*lines, "save checkpoint to artifacts/"]
    assert style.validated(validation(161045, 2.7272)) == lines
    folder = Path("artifacts/checkpoints/step-40")
    assert style.restored(SimpleNamespace(step=40, path=folder)) == [
        f"train state restored from {folder}",
        "skip train step to 39",
    ]
    assert style.eval_tracked(validation(4, 2.0)) == {"eval_loss": 2.0, "eval_ppl": math.exp(2.0)}
    assert style.tracked(record(30000, 1.0)) == {"loss": 1.0, "ppl": math.e, "epoch": 0.0}


def dicts(style_lines: list[str]) -> list[dict[str, float]]:
    return [ast.literal_eval(line) for line in style_lines]


def test_dict_lines_of_mu_transformer() -> None:
    config = config_of("mu_transformer", steps=12)
    style = style_of(facts(config))
    lines = []
    for step in range(1, 13):
        lines += style.step(record(step, 3.0, targets=24))
        if step == 6:
            assert style.validated(validation(6, 2.5)) == []
    found = dicts(lines)
    assert [list(line) for line in found] == [["step", "sec_per_step", "loss_avg", "val_loss_avg", "mfu"]] * 3
    assert [line["step"] for line in found] == [5, 10, 12]
    assert [line["val_loss_avg"] for line in found] == [None, 2.5, 2.5]
    assert all(
        line["loss_avg"] == pytest.approx(3.0 * 32 / 24) for line in found
    )  # the mean over the targets
    assert [line["sec_per_step"] for line in found] == pytest.approx([STEP] * 3)
    flops = 6 * 100 + 12 * 2 * 2 * 8 * LENGTH  # 100 parameters; L, H, D
    assert found[0]["mfu"] == pytest.approx(100 * flops * BATCH * LENGTH / STEP / 1e6)
    tracked = style.tracked(record(5, 3.0, targets=24))
    assert tracked["loss_term_avg"] == pytest.approx(3.0) and tracked["loss_mask_avg"] == 0.75
    assert tracked["param_count_total"] == 100 and tracked["val_loss_avg"] == 2.5


def test_compatible_dict_lines_number_batches() -> None:
    style = style_of(facts(config_of("mu_transformer", compat=True, steps=12)))
    found = dicts([line for step in range(1, 13) for line in style.step(record(step, 3.0))])
    assert [line["step"] for line in found] == [0, 5, 10]
    assert [line["sec_per_step"] for line in found] == pytest.approx([STEP / 5, STEP, STEP])


def test_a_start_names_every_field_of_the_original() -> None:
    lines = style_of(facts(config_of("mu_transformer"))).started()
    fields = dict(line.split(": ", 1) for line in lines)
    assert fields["workdir"] == "artifacts" and fields["mode"] == "train" and fields["wb_enabled"] == "False"
    assert (fields["d_model"], fields["n_layer"], fields["tokens_per_global_batch"]) == ("16", "2", "32")
    assert (fields["dtype"], fields["qk_scale"], fields["n_pretrain_step"]) == ("float32", "0.125", "40")


def test_each_epoch_ends_with_a_validation_and_a_save(tmp_path: Path) -> None:
    with fake_runs.make(tmp_path, None, "train.save_every=0") as trainer:
        config = trainer.config
        # This is what 20 steps become at the first start of a run of four epochs.
        trainer._state._config = dataclasses.replace(
            config, train=dataclasses.replace(config.train, epochs=4)
        )
        trainer.fit()
    validated = [row["step"] for row in fake_runs.rows_of(tmp_path) if "val_loss" in row]
    assert validated == [5, 8, 10, 15, 16, 20]
    assert sorted(
        path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith("step-")
    ) == [
        "step-10",
        "step-15",
        "step-20",
    ]
