"""One run of several ranks: rank 0 writes and prints, the others follow, and all of them make the same decisions."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of, rows_of, unbroken
from mudd_core.base.errors import DivergedError, ReportedElsewhereError, SaveError, UserError
from mudd_core.config.fields import replace_path
from mudd_core.dist import Comm
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Summary
from mudd_core.run.report.progress import Progress
from mudd_core.run.store.checkpoints import Checkpoints
from rank_runs import on_ranks


def run(
    path: Path | None,
    world: int,
    *words: str,
    engine: Callable[[int], FakeEngine] = lambda rank: FakeEngine(),
    fit: Callable[[Trainer], Any] = lambda trainer: trainer.fit(),
) -> list[Any]:
    """Return the result of `fit` on every rank, or the error that it raised there."""

    def work(comm: Comm) -> Any:
        try:
            made = engine(comm.rank)
            made.comm = comm
            assembly = fake_assembly(made)
            with Trainer(config_of(*words), path, comm=comm, assemble=assembly) as trainer:
                return fit(trainer)
        except Exception as error:
            return error

    return on_ranks(work, world)


def same(summaries: list[Any]) -> Summary:
    """Return the summary of all ranks, which must be equal except for times."""
    timeless = [dataclasses.replace(summary, seconds=0) for summary in summaries]
    assert all(one == timeless[0] for one in timeless), summaries
    first: Summary = timeless[0]
    return first


@pytest.mark.parametrize("world", [2, 4])
def test_the_files_of_a_run_are_those_of_one_process(tmp_path: Path, world: int) -> None:
    want = unbroken(tmp_path / "one")
    summary = same(run(tmp_path / "many", world))
    assert summary.final_hash == want and summary.stopped is None
    assert rows_of(tmp_path / "many") == rows_of(tmp_path / "one")
    one, many = (
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "tfevents" not in path.name)
        for folder in (tmp_path / "one", tmp_path / "many")
    )
    assert one == many
    events = [json.loads(line) for line in (tmp_path / "many" / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["started", *["saved"] * 4, "finished"]
    assert events[0]["ranks"] == world and events[0]["mesh"] == f"data 1 x fsdp {world}"


def test_only_the_first_rank_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    def work(comm: Comm) -> None:
        with Trainer(
            config_of("train.steps=4"), comm=comm, progress=Progress(), assemble=fake_assembly(FakeEngine())
        ) as trainer:
            trainer.fit()

    on_ranks(work, 4)
    printed = capsys.readouterr().out
    assert printed.count("step     4/4") + printed.count("step 4/4") == 1, printed


def test_a_run_goes_on_in_any_world(tmp_path: Path) -> None:
    want = unbroken(tmp_path / "one")
    for world, stop in ((1, 3), (2, 7), (4, 12), (1, 0)):
        summary = same(run(tmp_path / "run", world, f"train.stop_at={stop}"))
        assert summary.step == (stop or 20)
    assert summary.final_hash == want and rows_of(tmp_path / "run") == rows_of(tmp_path / "one")
    text = (tmp_path / "run" / "events.jsonl").read_text()
    assert text.count('"event": "resumed"') == 3 and '"ranks": 4' in text


def test_a_stop_that_one_rank_sees_ends_all_at_the_same_step(tmp_path: Path) -> None:
    path = tmp_path / "run"

    def engine(rank: int) -> FakeEngine:
        # Only rank 1 sees the file late: rank 0 is responsible for it.
        def before(step: int) -> None:
            if step == 6 and rank == 1:
                (path / "STOP").touch()

        return FakeEngine(before_step=before)

    summary = same(run(path, 4, engine=engine))
    assert summary.stopped == "STOP file" and summary.step in (7, 8)
    assert not (path / "STOP").exists()
    again = same(run(path, 2))
    assert again.final_hash == unbroken(tmp_path / "one")


def test_a_failed_save_is_everybodys_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Checkpoints.save

    def full(checkpoints: Checkpoints, step: int, *rest: Any, at: int = 10, **named: Any) -> None:
        if step >= at and step < at + 5:
            raise SaveError(f"[save] step {step}: {errno.errorcode[errno.ENOSPC]}")
        save(checkpoints, step, *rest, **named)

    monkeypatch.setattr(Checkpoints, "save", full)
    assert same(run(tmp_path / "run", 2)).step == 20
    assert (tmp_path / "run" / "events.jsonl").read_text().count('"save failed"') == 1
    monkeypatch.setattr(Checkpoints, "save", partialmethod(full, at=16))
    first, second = run(tmp_path / "full", 2)
    assert isinstance(first, SaveError) and isinstance(second, ReportedElsewhereError)
    assert second.exit_code == first.exit_code == 74


def test_a_run_that_diverges_ends_on_all_ranks_alike(tmp_path: Path) -> None:
    def engine(rank: int) -> FakeEngine:
        return FakeEngine(bad=frozenset(range(4, 20)))

    found = run(tmp_path / "run", 4, "train.max_skips=3", "train.rewind=0", engine=engine)
    assert all(isinstance(error, DivergedError) for error in found)
    assert "the first non-finite value is in blocks.1.ffn.up" in str(found[0])
    assert len({str(error) for error in found}) == 1


def test_a_rewind_is_everybodys(tmp_path: Path) -> None:
    def engine(rank: int) -> FakeEngine:
        return FakeEngine(bad=frozenset(range(12, 15)))

    words = ("train.max_skips=3",)
    with Trainer(config_of(*words), tmp_path / "one", assemble=fake_assembly(engine(0))) as trainer:
        want = trainer.fit()
    summary = same(run(tmp_path / "many", 2, *words, engine=engine))
    assert (summary.final_hash, summary.rewinds) == (want.final_hash, 1)
    assert rows_of(tmp_path / "many") == rows_of(tmp_path / "one")


def test_a_folder_in_use_is_refused_on_all_ranks_and_reported_once(tmp_path: Path) -> None:
    with Trainer(config_of(), tmp_path / "run", assemble=fake_assembly(FakeEngine())):
        first, second = run(tmp_path / "run", 2)
    assert isinstance(first, UserError) and "in use" in str(first)
    assert isinstance(second, ReportedElsewhereError) and second.exit_code == 2


def test_another_config_is_refused_on_all_ranks(tmp_path: Path) -> None:
    run(tmp_path / "run", 2, "train.stop_at=4")
    first, second = run(tmp_path / "run", 2, "optim.lr=1.0")
    assert isinstance(first, UserError) and "optim.lr" in str(first)
    assert isinstance(second, ReportedElsewhereError)


def test_a_world_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    first, *others = run(tmp_path / "run", 3)
    assert isinstance(first, UserError) and "[mesh] 3 ranks do not divide" in str(first)
    assert all(isinstance(error, ReportedElsewhereError) and error.exit_code == 2 for error in others)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5])
def test_dealt_out_validation_has_the_bits_of_one_process(count: int) -> None:
    class Evaluator:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def evaluate(self, batch: int) -> tuple[float, int, int]:
            self.seen.append(batch)
            return 0.1 * batch + 1e-17 * batch, 7 + batch, 3 + batch

    def work(ranks: Ranks, stop: Callable[[], bool] = lambda: False) -> Any:
        evaluator = Evaluator()
        found = evaluate(evaluator, range(count), step=3, bytes_per_target=2.0, ranks=ranks, stop=stop)
        assert found is not None
        shares = (found.val_accuracy, found.batch_accuracy, found.batch_loss)
        return found.val_loss.hex(), (found.targets, *shares), evaluator.seen

    loss, targets, _ = work(Ranks())
    found = on_ranks(lambda comm: work(Ranks(comm)), 2)
    assert [one[:2] for one in found] == [(loss, targets)] * 2
    assert [one[2] for one in found] == [list(range(0, count, 2)), list(range(1, count, 2))]


def test_a_config_that_asks_for_another_world_is_refused() -> None:
    with pytest.raises(UserError, match="1 rank was started"):
        Trainer(replace_path(replace_path(config_of(), "mesh.fsdp", 2), "mesh.data", 1))
