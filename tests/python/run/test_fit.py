"""fit(steps), iteration, history, Ctrl-C and close: the Trainer as a notebook uses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from fake_engine import FakeEngine
from fake_runs import make, rows_of, unbroken
from mudd_core import checkpoint
from mudd_core.run.records.events import StepRecord
from mudd_core.run.report import history
from tiny_run import CONFIG, TinyRun


def test_fit_in_parts_is_fit_at_once(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "parts") as trainer:
        first = trainer.fit(7)
        assert (first.step, first.stopped, trainer.step_done) == (7, "fit(steps)", 7)
        assert trainer.fit(steps=0).step == 7
        assert trainer.fit(steps=6, progress=False).step == 13
        last = trainer.fit(100)
        assert (last.step, last.stopped, last.final_hash) == (20, None, whole)
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    with make(None) as trainer:
        for wrong, error in ((-1, ValueError), (1.5, TypeError)):
            with pytest.raises(error):
                trainer.fit(wrong)  # type: ignore[arg-type]


def test_iteration_gives_a_record_for_each_update_and_saves_at_the_end(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "parts") as trainer:
        records = list(trainer)
        assert trainer.final_hash() == whole and list(trainer) == []
    assert all(isinstance(record, StepRecord) for record in records)
    assert [record.step for record in records] == list(range(1, 21))
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert checkpoint.list_steps(tmp_path / "parts" / "checkpoints") == [10, 15, 20]


def test_a_loop_that_is_left_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "parts") as trainer:
        for record in trainer:
            if record.step == 6:
                break
        assert trainer.step_done == 6 and trainer.validate().step == 6
        assert next(iter(trainer)).step == 7
        assert trainer.fit().final_hash == whole
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


def test_history_has_every_update_as_arrays(tmp_path: Path) -> None:
    with make(tmp_path / "run") as trainer:
        assert trainer.history.rows == 0
        losses = [trainer.step().loss, *(record.loss for record in trainer)]
        assert trainer.history["step"].tolist() == list(range(1, 21))
        assert trainer.history["loss"].tolist() == losses and trainer.history["loss"].dtype == np.float64
        assert trainer.validations["step"].tolist() == [8, 16, 20]
    assert mc.load_run(tmp_path / "run").metrics["loss"].tolist() == losses[1::2]  # train.log_every=2


def test_the_history_of_a_resumed_run_begins_with_its_logged_updates(tmp_path: Path) -> None:
    with make(tmp_path / "run") as trainer:
        trainer.fit(steps=6, progress=False)
    with make(tmp_path / "run") as trainer:
        assert trainer.history["step"].tolist() == [2, 4, 6]  # train.log_every=2
        trainer.fit(steps=3, progress=False)
        assert trainer.history["step"].tolist() == [2, 4, 6, 7, 8, 9]
        trainer.fit(progress=False)
    with make(tmp_path / "run") as finished:
        assert finished.history["loss"].tolist() == mc.load_run(tmp_path / "run").metrics["loss"].tolist()
        assert finished.validations["step"].tolist() == [8, 16, 20]


def test_a_long_history_keeps_every_second_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_NUMBERS", 60)  # entries have 8 columns
    with make(None) as trainer:
        trainer.fit(progress=False)
        steps = trainer.history["step"].tolist()
    assert len(steps) <= 8 and steps[0] == 1 and steps[-1] == 20 and steps == sorted(set(steps))


def test_a_rewind_takes_its_updates_out_of_the_history() -> None:
    found = history.History()
    for step in (1, 2, 3, 2):
        found.updated(StepRecord(step, 8 * step, 1.0 * step, 0.1, 0.5, 9.0, 0.1, 1.0))
    assert found.updates["step"].tolist() == [1, 2] and found.updates["tokens"].tolist() == [8, 16]


def press(at: int) -> Callable[[int], None]:
    def before_step(step: int) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)

    return before_step


@pytest.mark.parametrize("with_folder", [True, False])
@pytest.mark.parametrize("loop", ["fit", "iteration"])
def test_ctrl_c_keeps_the_state_and_the_same_trainer_goes_on(
    loop: str, with_folder: bool, tmp_path: Path
) -> None:
    whole = unbroken(tmp_path / "whole")
    folder = tmp_path / "run" if with_folder else None
    with make(folder, FakeEngine(before_step=press(6))) as trainer:
        with pytest.raises(KeyboardInterrupt):
            trainer.fit() if loop == "fit" else list(trainer)
        assert trainer.step_done in (5, 6) and trainer.history["step"][-1] == trainer.step_done
        if folder is not None:
            assert checkpoint.list_steps(folder / "checkpoints")[-1] == trainer.step_done
        trainer.engine.before_step = lambda step: None  # type: ignore[attr-defined]
        assert trainer.fit().final_hash == whole


def test_sigint_in_a_script_leaves_a_run_that_its_folder_resumes(tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.steps=30", "train.save_every=100")
    whole = TinyRun(tmp_path / "whole", tiny_text, words).trained()
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "import mudd_core as mc\n"
        "data, cache = sys.argv[2:]\n"
        "config = mc.load_config(sys.argv[1], {'data.path': data, 'data.cache_dir': cache, 'train.steps': 30,\n"
        "                                      'train.save_every': 100})\n"
        "with mc.Trainer(config, 'run') as trainer:\n"
        "    try:\n"
        "        for record in trainer:\n"
        "            if record.step == 11:\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted at', trainer.step_done)\n"
        "    trainer.save()\n"
        "with mc.Trainer('run') as trainer:\n"
        "    print(trainer.step_done, trainer.fit().final_hash)\n"
    )
    words = (str(CONFIG), str(tiny_text), str(tiny_text.parent / "cache"))
    done = subprocess.run([sys.executable, str(script), *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "interrupted at 11"
    assert done.stdout.split()[-2:] == ["11", whole.summary()["final_hash"]]
    assert re.findall(r"^step .*/30  loss", done.stderr, re.MULTILINE) == [
        "step 30/30  loss"
    ]  # only fit() prints it


def test_closed_means_closed(tmp_path: Path) -> None:
    trainer = make(tmp_path / "run")
    with trainer:
        trainer.fit()
    trainer.close()  # a second close has no effect
    calls: dict[str, Callable[[], Any]] = {
        "step": trainer.step,
        "fit": trainer.fit,
        "iterate": lambda: next(iter(trainer)),
        "validate": trainer.validate,
        "save": trainer.save,
        "with": trainer.__enter__,
    }
    for name, call in calls.items():
        with pytest.raises(
            ValueError, match=r"\[Trainer\] this Trainer is closed; mc\.Trainer\('.*run'\) continues"
        ) as caught:
            call()
        assert "\n" not in str(caught.value), name
    assert trainer.history.rows == 20 and trainer.config.train.steps == 20 and trainer.model is not None
    without = make(None)
    without.close()
    with pytest.raises(ValueError, match="this Trainer is closed; create a new Trainer"):
        without.fit()


def test_progress_belongs_to_fit() -> None:
    with pytest.raises(TypeError, match=r"got True; type trainer\.fit\(progress=True\)"):
        mc.Trainer("tiny.py", progress=True)  # type: ignore[arg-type]
