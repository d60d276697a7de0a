"""The checkpoints that a run writes and keeps, the steps of its validations, and the end at a target loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine
from fake_runs import config_of, make, rows_of, steps_in, unbroken
from mudd_core import checkpoint
from mudd_core.base.errors import UserError
from mudd_core.checkpoint import whole_parts
from mudd_core.run.records.events import Validation
from tiny_run import TinyRun


def test_keep_last_0_keeps_all_and_keep_every_its_multiples(tmp_path: Path) -> None:
    unbroken(tmp_path / "all", "train.keep_last=0", "train.save_every=2")
    assert steps_in(tmp_path / "all") == list(range(2, 21, 2))
    unbroken(tmp_path / "some", "train.keep_last=1", "train.keep_every=6", "train.save_every=2")
    assert steps_in(tmp_path / "some") == [6, 12, 18, 20]


def test_steps_of_save_at_are_saved_in_addition_and_stay(tmp_path: Path) -> None:
    plain = ("train.keep_last=1", "train.save_every=8")
    words = (*plain, "train.save_at=0, 1,2,5,40")
    whole = unbroken(tmp_path / "plain", *plain)
    assert unbroken(tmp_path / "whole", *words) == whole
    assert steps_in(tmp_path / "whole") == [0, 1, 2, 5, 20]
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "plain")
    with make(tmp_path / "parts", None, *words, "train.stop_at=4") as trainer:
        trainer.fit()
    start = (tmp_path / "parts" / "checkpoints" / "step-0").stat().st_mtime_ns
    with make(tmp_path / "parts", None, *words) as trainer:
        assert trainer.step_done == 4 and trainer.fit().final_hash == whole
    assert steps_in(tmp_path / "parts") == [0, 1, 2, 5, 20]
    assert (tmp_path / "parts" / "checkpoints" / "step-0").stat().st_mtime_ns == start


def test_a_run_killed_after_its_start_goes_on_from_step_0(tmp_path: Path) -> None:
    words = ("train.save_at=0", "train.save_every=8")
    with make(tmp_path / "run", None, *words) as trainer:
        trainer.fit(0)
    assert steps_in(tmp_path / "run") == [0]
    with make(tmp_path / "run", None, *words) as trainer:
        assert trainer.step_done == 0 and trainer.fit().final_hash == unbroken(tmp_path / "whole")
    assert steps_in(tmp_path / "run") == [0, 8, 16, 20]


@pytest.mark.parametrize("text", ["1,x", "1,,2", "-1", "1 2", "1.5", "99999999999"])
def test_a_list_of_steps_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"train\.save_at: expected steps separated by commas"):
        config_of(f"train.save_at={text}")


class Scripted(FakeEngine):
    """An engine whose validation loss depends on the number of updates so far."""

    def evaluate(self, batch: Any) -> tuple[float, int, int]:
        loss = {4: 3.0, 8: 2.0, 12: 2.5, 16: 1.5, 20: 1.75}[len(self.batches)]
        return loss * 10 * batch, 10 * batch, 3 * batch


BEST = ("train.save_policy=best", "train.eval_every=4", "train.save_every=2")


def test_the_best_validation_is_saved_and_nothing_else(tmp_path: Path) -> None:
    with make(tmp_path, Scripted(), *BEST, "train.keep_last=0") as trainer:
        assert trainer.fit().step == 20
    assert steps_in(tmp_path) == [4, 8, 16]


def test_the_best_loss_is_remembered_over_a_resume(tmp_path: Path) -> None:
    whole = unbroken_best(tmp_path / "whole")
    with make(tmp_path / "parts", Scripted(), *BEST, "train.stop_at=11") as trainer:
        assert trainer.fit().stopped
    assert steps_in(tmp_path / "parts") == [4, 8]
    engine = Scripted(batches=list(range(8)))
    with make(tmp_path / "parts", engine, *BEST) as trainer:
        assert trainer.step_done == 8 and trainer.fit().final_hash == whole
    assert steps_in(tmp_path / "parts") == [4, 8, 16]  # 12 is no better than 8


def unbroken_best(path: Path) -> str:
    with make(path, Scripted(), *BEST) as trainer:
        return trainer.fit().final_hash


def test_without_checkpoints_nothing_is_written_and_the_next_start_begins_again(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "run", None, "train.save=false", "train.stop_at=7") as trainer:
        assert trainer.fit().step == 7
    assert not steps_in(tmp_path / "run")
    with make(tmp_path / "run", None, "train.save=false") as trainer:
        assert trainer.step_done == 0 and trainer.fit().final_hash == whole
    assert not steps_in(tmp_path / "run") and rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")


def test_a_command_without_checkpoints_says_what_a_stop_costs(tiny_text: Path, memory_path: Path) -> None:
    run = TinyRun(memory_path / "run", tiny_text, ("train.steps=4", "train.stop_at=2", "train.save=false"))
    assert run.finish_here() == 75
    assert "[train.save] no checkpoint is written" in run.output and "its updates are lost" in run.output
    run.words = ("train.steps=4", "train.save=false")
    assert run.finish_here() == 0 and "checkpoint  " not in run.output, run.tail


def test_a_run_may_validate_before_its_first_update(tmp_path: Path) -> None:
    with make(tmp_path, FakeEngine(), "eval.at_start=true", "train.stop_at=2", "train.save=false") as trainer:
        trainer.fit()
    with make(tmp_path, FakeEngine(), "eval.at_start=true") as trainer:  # the entry of step 0 remains, once
        trainer.fit()
    assert [row["step"] for row in rows_of(tmp_path) if "val_loss" in row] == [0, 8, 16, 20]


def test_validations_may_follow_tokens(tmp_path: Path) -> None:
    config = config_of()
    tokens = config.train.batch_size * config.train.seq_len
    unbroken(tmp_path, f"eval.every_tokens={tokens * 7 // 2}")
    assert [row["step"] for row in rows_of(tmp_path) if "val_loss" in row] == [4, 7, 11, 14, 18, 20]


TARGET = ("eval.target_loss=2", "train.eval_every=4")


def test_a_target_loss_ends_the_run_saved(tmp_path: Path) -> None:
    with make(tmp_path, Scripted(), *TARGET) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.stopped, summary.reached) == (8, None, True)
    assert steps_in(tmp_path)[-1] == 8
    with make(tmp_path, Scripted(batches=list(range(8))), *TARGET) as trainer:
        assert trainer.fit().step == 8
    with make(tmp_path, Scripted(batches=list(range(8))), "eval.target_loss=1.6", TARGET[1]) as trainer:
        assert trainer.fit().step == 16


def test_a_target_loss_needs_validations() -> None:
    with pytest.raises(UserError, match=r"eval\.target_loss: needs validations"):
        config_of("eval.target_loss=2", "train.eval_every=0")


def test_a_finished_command_at_its_target_is_not_trained_further(tiny_text: Path, memory_path: Path) -> None:
    words = ("train.steps=9", "train.eval_every=2", "eval.target_loss=50")
    run = TinyRun(memory_path / "run", tiny_text, words)
    assert run.finish_here() == 0 and run.summary()["step"] == 2 and run.summary()["reached"] is True
    assert run.finish_here() == 0 and "is finished." in run.output, run.tail


def test_data_without_text_has_a_perplexity_and_no_bits_per_byte() -> None:
    row = Validation(3, 2.0, None, 5, 0.1).row()
    assert json.loads(json.dumps(row)) == {
        "step": 3,
        "val_loss": 2.0,
        "val_bits_per_byte": None,
        "val_ppl": pytest.approx(np.e**2),
        "val_accuracy": None,
        "targets": 5,
        "seconds": 0.1,
    }
    assert "val_ppl" not in Validation(3, 2.0, None, 5, 0.1, val_margin=0.3).row()
    assert Validation(3, 2.0, None, 5, 0.1).text == "ppl 7.389"
    assert Validation(3, 2.0, 1.5, 5, 0.1).text == "1.5000 bits per byte"


def test_validation_rows_have_the_perplexity_beside_the_bits(tmp_path: Path) -> None:
    unbroken(tmp_path)
    for row in rows_of(tmp_path):
        if "val_loss" in row:
            assert row["val_ppl"] == pytest.approx(np.exp(row["val_loss"])) and row["val_bits_per_byte"] > 0


def test_a_step_saved_again_with_another_state_is_replaced(tmp_path: Path) -> None:
    def save(state: dict[str, Any], config_hash: str = "c") -> dict[str, Any]:
        parts = whole_parts({"w": np.ones(3, np.float32)})
        checkpoint.save(tmp_path, 4, parts, state, config_hash=config_hash, run_id="r")
        return dict(checkpoint.load_step(tmp_path, 4).state)

    save({"step": 4, "seconds": 1.0, "skipped_steps": []})
    assert (
        save({"step": 4, "seconds": 2.0, "skipped_steps": []})["seconds"] == 1.0
    )  # equal except for its time
    assert save({"step": 4, "seconds": 2.0, "skipped_steps": [3]})["skipped_steps"] == [3]
    assert save({"step": 4, "seconds": 5.0, "skipped_steps": [3]}, "d")["seconds"] == 5.0


@pytest.mark.parametrize("words", [(), ("train.eval_every=4",), ("eval.every_tokens=100",)])
def test_eval_off_validates_at_no_step_but_the_start(words: tuple[str, ...], tmp_path: Path) -> None:
    with make(tmp_path / "off", None, "eval.off=true", *words) as trainer:
        summary = trainer.fit()
        assert summary.val_loss is None and not summary.validates and len(trainer.validations["step"]) == 0
    with make(tmp_path / "start", None, "eval.off=true", "eval.at_start=true", *words) as trainer:
        trainer.fit()
        assert list(trainer.validations["step"]) == [0]
    with make(tmp_path / "on", None, *words) as trainer:
        assert trainer.fit().final_hash == summary.final_hash and trainer.validations["step"][-1] == 20
