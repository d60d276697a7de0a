"""train.patience ends a run, train.keep_best keeps its best checkpoint; a stop or a kill changes neither."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crash_states
import mudd_core as mc
from checkpoint_cases import RUN, faults, save
from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of, make, rows_of, steps_in
from mudd_core import checkpoint
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.dist import Comm
from mudd_core.run.build.rows import no_validation
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records.events import Summary, Validations
from mudd_core.run.store.best_step import best_step, step_asked
from mudd_core.run.store.json_files import finished_summary
from mudd_core.run.store.run_folder import RunFolder
from rank_runs import on_ranks
from tiny_run import TinyRun

# The best loss is at step 6; then come three that are no better: one is equal, one is NaN.
LOSSES = {2: 3.0, 4: 2.0, 6: 1.5, 8: 1.5, 10: math.nan, 12: 2.5, 14: 1.0, 16: 2.0, 18: 2.0, 20: 2.0}
PATIENT = ("train.patience=3", "train.eval_every=2", "train.save_every=4", "train.keep_last=1")


class Scripted(FakeEngine):
    """An engine with these validation losses, by step."""

    def evaluate(self, batch: Any) -> tuple[float, int, int]:
        return LOSSES[len(self.batches)] * 10 * batch, 10 * batch, 3 * batch


def scripted(path: Path | None, step: int = 0, *words: str) -> Trainer:
    """Return a run with the losses above, whose engine has already made `step` updates."""
    return make(path, Scripted(batches=list(range(step))), *PATIENT, *words)


def trained(path: Path, *words: str) -> Summary:
    with scripted(path, 0, *words) as trainer:
        return trainer.fit()


def test_validations_find_the_best_and_count_those_behind_it() -> None:
    found = Validations(LOSSES.items())
    assert found.best == (1.0, 14) and found.since_best == 3
    assert found.best_first() == [14, 6, 8, 4, 16, 18, 20, 12, 2]
    assert Validations([(2, math.nan), (4, math.inf)]).since_best == 2
    assert Validations().best is None


def test_a_run_ends_saved_after_validations_without_a_better_loss(tmp_path: Path) -> None:
    summary = trained(tmp_path)
    assert (summary.step, summary.stopped, summary.out_of_patience) == (12, None, True)
    assert (summary.best_step, summary.best_val_loss, summary.since_best) == (6, 1.5, 3)
    saved = json.loads((tmp_path / "summary.json").read_text())
    assert saved["out_of_patience"] is True and (saved["step"], saved["best_step"]) == (12, 6)
    assert steps_in(tmp_path) == [12]


def test_the_last_step_of_a_run_that_ends_early_has_a_row(tmp_path: Path) -> None:
    rare = trained(tmp_path / "rare", "train.log_every=100")
    often = trained(tmp_path / "often", "train.log_every=1")
    assert rare.final_hash == often.final_hash
    (row,) = (row for row in rows_of(tmp_path / "rare") if "loss" in row)
    assert row == [row for row in rows_of(tmp_path / "often") if "loss" in row][-1] and row["step"] == 12
    with scripted(tmp_path / "stopped", 0, "train.log_every=100", "train.stop_at=3") as trainer:
        assert trainer.fit().stopped
    assert [row for row in rows_of(tmp_path / "stopped") if "loss" in row] == []


def test_a_run_that_reaches_its_last_step_ends_by_that(tmp_path: Path) -> None:
    summary = trained(tmp_path, "train.patience=4")
    assert (summary.step, summary.out_of_patience, summary.best_step) == (20, False, 14)


@pytest.mark.parametrize("stop", range(1, 12))
def test_a_stop_at_any_step_changes_no_decision(tmp_path: Path, stop: int) -> None:
    whole = trained(tmp_path / "whole")
    with scripted(tmp_path / "run", 0, f"train.stop_at={stop}") as trainer:
        assert trainer.fit().stopped
    with scripted(tmp_path / "run", stop) as trainer:
        summary = trainer.fit()
    assert (summary.step, summary.final_hash, summary.since_best) == (12, whole.final_hash, 3)
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")


def test_a_lost_process_resumes_its_checkpoint_with_the_count_of_that_step(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    with scripted(tmp_path / "run") as trainer:
        assert [record.step for _, record in zip(range(11), trainer, strict=False)][-1] == 11
    assert steps_in(tmp_path / "run") == [8]  # four validations, the last one at step 10
    with scripted(tmp_path / "run", 8) as trainer:
        assert trainer.step_done == 8
        assert trainer.fit().final_hash == whole.final_hash
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")


def test_a_finished_run_is_done_until_its_patience_is_raised(tmp_path: Path) -> None:
    trained(tmp_path)
    config, folder = config_of(*PATIENT), RunFolder(tmp_path)
    assert finished_summary(folder, config) is not None
    assert finished_summary(folder, config_of(*PATIENT, "train.patience=2")) is not None
    for more in ("train.patience=4", "train.patience=0"):
        assert finished_summary(folder, config_of(*PATIENT, more)) is None
    with scripted(tmp_path, 12) as trainer:
        assert trainer.fit().step == 12
    with scripted(tmp_path, 12, "train.patience=4") as trainer:
        assert trainer.fit().step == 20
    with scripted(tmp_path / "whole", 0, "train.patience=4") as trainer:
        trainer.fit()
    assert rows_of(tmp_path) == rows_of(tmp_path / "whole")


def test_a_run_of_an_earlier_version_counts_its_recorded_validations(tmp_path: Path) -> None:
    with scripted(tmp_path, 0, "train.patience=0", "train.stop_at=10") as trainer:
        trainer.fit()
    file = tmp_path / "config.json"
    raw = json.loads(file.read_text())
    del raw["train"]["patience"], raw["train"]["keep_best"]
    file.write_text(json.dumps(raw))
    with scripted(tmp_path, 10) as trainer:
        assert trainer.fit().step == 12


class Flat(FakeEngine):
    """An engine whose validation losses are all equal."""

    def evaluate(self, batch: Any) -> tuple[float, int, int]:
        return 10.0 * batch, 10 * batch, 3 * batch


def test_a_rewind_forgets_the_validations_that_it_leaves(tmp_path: Path) -> None:
    words = ("train.patience=9", "train.eval_every=1", "train.save_every=5", "train.max_skips=2")
    bad = frozenset({7, 8})  # rewound from step 9 to 5, which has the first five validations
    with make(tmp_path / "run", Flat(bad=bad), *words) as trainer:
        whole = trainer.fit()
    assert (whole.step, whole.rewinds, whole.best_step, whole.since_best) == (10, 1, 1, 9)
    for stop in range(1, 10):
        path = tmp_path / f"run{stop}"
        for end in (f"train.stop_at={stop}", "train.stop_at=0"):
            with make(path, Flat(bad=bad), *words, end) as trainer:
                summary = trainer.fit()
        assert (summary.step, summary.since_best, summary.final_hash) == (10, 9, whole.final_hash)


def on_each(path: Path, world: int, fit: Callable[[Trainer], Any], *words: str, step: int = 0) -> list[Any]:
    def work(comm: Comm) -> Any:
        engine = Scripted(batches=list(range(step)))
        engine.comm = comm
        config = config_of(*PATIENT, *words)
        with Trainer(config, path, comm=comm, assemble=fake_assembly(engine)) as trainer:
            return fit(trainer)

    return on_ranks(work, world)


def test_ranks_end_at_the_same_step_and_keep_the_same_checkpoint(tmp_path: Path) -> None:
    whole = trained(tmp_path / "one", "train.keep_best=true")
    on_each(tmp_path / "run", 2, lambda trainer: trainer.fit(), "train.keep_best=true", "train.stop_at=9")
    found = on_each(tmp_path / "run", 4, lambda trainer: trainer.fit(), "train.keep_best=true", step=9)
    assert {(one.step, one.since_best, one.final_hash) for one in found} == {(12, 3, whole.final_hash)}
    assert steps_in(tmp_path / "run") == steps_in(tmp_path / "one") == [6, 12]


def test_the_best_checkpoint_stays_beside_the_newest(tmp_path: Path) -> None:
    whole = trained(tmp_path, "train.keep_best=true", "train.patience=0")
    assert steps_in(tmp_path) == [14, 20] and whole.best_step == 14
    assert best_step(RunFolder(tmp_path)) == 14
    plain = trained(tmp_path / "plain", "train.patience=0")
    assert steps_in(tmp_path / "plain") == [20] and plain.final_hash == whole.final_hash
    assert best_step(RunFolder(tmp_path / "plain")) == 20


@pytest.mark.parametrize("stop", range(1, 20))
def test_a_stop_at_any_step_keeps_the_same_best_checkpoint(tmp_path: Path, stop: int) -> None:
    words = ("train.keep_best=true", "train.patience=0")
    with scripted(tmp_path, 0, *words, f"train.stop_at={stop}") as trainer:
        trainer.fit()
    with scripted(tmp_path, stop, *words) as trainer:
        trainer.fit()
    assert steps_in(tmp_path) == [14, 20]


def test_a_save_of_the_best_that_fails_costs_no_earlier_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint.save

    def refuse(folder: Path, step: int, *arguments: Any, **named: Any) -> Path:
        if step == 14:
            raise OSError(28, "No space left on device")
        return real(folder, step, *arguments, **named)

    monkeypatch.setattr(checkpoint, "save", refuse)
    trained(tmp_path, "train.keep_best=true", "train.patience=0")
    assert steps_in(tmp_path) == [6, 20] and best_step(RunFolder(tmp_path)) == 6


def test_a_power_cut_during_a_save_leaves_the_best_and_a_newest_step(memory_path: Path) -> None:
    disk = memory_path / "disk"
    for step in (0, 1, 2):
        save(disk, step)
    before = crash_states.read_disk(disk)
    with faults() as files:
        save(disk, 3)
        dropped = checkpoint.keep_last(
            disk, 1, run_id=RUN["run_id"], saved_step=3, best_first=[7, 1, 0, 2, 3]
        )
    assert dropped == [0, 2]
    for count in range(len(files.log) + 1):
        root = memory_path / f"cut{count}"
        kept = [crash_states.KEPT] * count
        crash_states.materialise(crash_states.replay(files.log, kept, before), str(disk), root)
        checkpoint.recover(root)
        found = checkpoint.load_newest(root)
        assert found is not None and found.step >= 2
        assert checkpoint.load_step(root, 1).step == 1


def test_fields_that_compare_validations_need_some() -> None:
    for field in ("train.patience=2", "train.keep_best=true"):
        name = field.partition("=")[0]
        with pytest.raises(
            UserError, match=rf"{name}: needs validations during the training; set train\.eval_every"
        ):
            config_of(field, "train.eval_every=0")
        with pytest.raises(UserError, match=f"{name} needs validation files, got none"):
            no_validation(config_of(field), 0)
        config_of(field, "train.eval_every=0", "train.epochs=2")
        config_of(field, "train.eval_every=0", "eval.every_tokens=5000")
    with pytest.raises(UserError, match=r"train\.keep_best: needs checkpoints"):
        config_of("train.keep_best=true", "train.save=false")


WORDS = ("train.steps=60", "train.eval_every=3", "train.save_every=4", "optim.lr=0.2", "train.keep_last=1")
BOTH = ("train.patience=3", "train.keep_best=true")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, tiny_text: Path) -> TinyRun:
    """Run a command until it runs out of patience."""
    run = TinyRun(tmp_path_factory.mktemp("ended") / "run", tiny_text, (*WORDS, *BOTH)).trained()
    assert run.summary()["out_of_patience"] is True
    return run


def test_the_command_says_why_it_ended_and_is_done(ended: TinyRun) -> None:
    step, best = ended.summary()["step"], ended.summary()["best_step"]
    assert "3 validations in a row were not better (train.patience) than" in ended.output
    assert best < step < 60 and {best, step} <= set(steps_in(ended.workdir))
    again = TinyRun(ended.workdir, ended.text, ended.words)
    assert again.finish() == 0 and "is finished." in again.output
    assert "fewer after 3 validations" not in again.output


def test_a_command_that_is_killed_ends_at_the_same_step_with_the_same_bits(
    ended: TinyRun, memory_path: Path
) -> None:
    run = TinyRun(memory_path / "run", ended.text, ended.words)
    for step in (5, ended.summary()["step"] - 2):
        process = run.start()
        run.wait_for_step(process, step)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run.finished()
    for name in ("step", "final_hash", "best_step", "since_best", "out_of_patience"):
        assert run.summary()[name] == ended.summary()[name], name
    assert run.rows() == ended.rows() and steps_in(run.workdir) == steps_in(ended.workdir)


def test_commands_read_the_best_checkpoint(
    ended: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = ended.summary()["best_step"]
    words = [f"--workdir={ended.workdir}", f"data.path={ended.text}"]
    words.append(f"data.cache_dir={ended.text.parent / 'cache'}")
    assert main(["validate", *words, "--step=best"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"step {best}: validation loss {ended.summary()['best_val_loss']:.6f}")
    assert main(["sample", *words, "--step", "best", "sample.max_tokens=2"]) == 0
    assert main(["report", f"--workdir={ended.workdir}"]) == 0
    assert f"{best} (best validation)" in capsys.readouterr().out
    assert mc.load_run(ended.workdir, step="best").step == best
    assert mc.load_run(ended.workdir).step == ended.summary()["step"]
    to = tmp_path / "exported"
    assert main(["export", f"--workdir={ended.workdir}", "--step=best", "--system=own", f"--to={to}"]) == 0
    loaded, _ = mc.load(to)
    want = mc.load_run(ended.workdir, step=best).model.parameters
    assert all((loaded.parameters[name] == want[name]).all() for name in want)


def test_a_step_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a whole number of at least 0, got 'last', or best"):
        step_asked("last", RunFolder(tmp_path))
    with scripted(tmp_path / "run", 0, "train.stop_at=1") as trainer:
        trainer.fit()
    with pytest.raises(UserError, match="expected a run with a checkpoint at a validation"):
        step_asked("best", RunFolder(tmp_path / "run"))
