"""Complete runs of several ranks with the real engine: samples, validation, checkpoints, resumes; bits as of one
process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.run.loop.trainer import Trainer
from rank_runs import config_of, on_ranks
from whole_runs import MIXTURE, SLOW, lines, rows, run


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_worlds_give_the_run_of_one_process(tiny_text: Path, tmp_path: Path, precision: str) -> None:
    fields = {"train.precision": precision}
    want = run(tmp_path / "one", tiny_text, 1, **fields)
    for world in (2, 4):
        got = run(tmp_path / str(world), tiny_text, world, **fields)
        assert (got.final_hash, got.loss, got.val_loss) == (want.final_hash, want.loss, want.val_loss)
        assert rows(tmp_path / str(world)) == rows(tmp_path / "one")


def test_parts_and_single_updates_on_ranks_are_one_run_and_the_first_shows_it(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want = run(tmp_path / "one", tiny_text, 1)
    capsys.readouterr()

    def whole(comm: Any) -> int:
        with Trainer(config_of(tiny_text), tmp_path / "two", comm=comm) as trainer:
            return [record.step for record in trainer][-1]

    def parts(comm: Any) -> list[str]:
        with Trainer(config_of(tiny_text), tmp_path / "parts", comm=comm) as trainer:
            trainer.fit(2)
            for record in trainer:
                if record.step == 4:
                    break
            trainer.save()
        with Trainer(tmp_path / "parts", comm=comm) as trainer:  # resumed by the folder of the run
            return [str(trainer.step_done), trainer.fit().final_hash]

    assert on_ranks(whole, 2, 1, **SLOW) == [want.step] * 2
    assert on_ranks(parts, 2, 1, **SLOW) == [["4", want.final_hash]] * 2
    assert rows(tmp_path / "parts") == rows(tmp_path / "two") == rows(tmp_path / "one")
    assert capsys.readouterr().err.count("  loss ") == 2  # two of the calls of fit() made updates


@pytest.mark.parametrize(("world", "on_a_node"), [(2, 1), (4, 1), (4, 2)])
def test_nodes_give_the_run_of_one_process(
    tiny_text: Path, tmp_path: Path, world: int, on_a_node: int
) -> None:
    want = run(tmp_path / "one", tiny_text, 1)
    assert run(tmp_path / "many", tiny_text, world, on_a_node, SLOW).final_hash == want.final_hash
    assert rows(tmp_path / "many") == rows(tmp_path / "one")


@pytest.mark.parametrize(("world", "on_a_node", "batch"), [(2, 1, 8), (4, 2, 11), (4, 4, 8)])
def test_cut_weights_give_the_run_of_one_process(
    tiny_text: Path, tmp_path: Path, world: int, on_a_node: int, batch: int
) -> None:
    """Use batches that do not divide evenly among the ranks, also in validations, and samples, which need all ranks."""
    fields = {"eval.max_batches": 3, "sample.every": 4, "train.batch_size": batch}
    want = run(tmp_path / "one", tiny_text, 1, **fields)
    got = run(tmp_path / "many", tiny_text, world, on_a_node, SLOW, **{"mesh.zero": 3, **fields})
    assert (got.final_hash, got.val_loss) == (want.final_hash, want.val_loss)
    assert rows(tmp_path / "many") == rows(tmp_path / "one")
    texts = [
        [one["text"] for one in map(json.loads, lines(tmp_path / name / "samples.jsonl"))]
        for name in ("one", "many")
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 2


def test_cut_weights_resume_whole_ones_and_whole_ones_them(tiny_text: Path, tmp_path: Path) -> None:
    want = run(tmp_path / "one", tiny_text, 1)
    for world, on_a_node, zero, stop in (
        (1, 1, 1, 1),
        (2, 1, 1, 2),
        (4, 2, 1, 4),
        (4, 1, 3, 5),
        (2, 2, 3, 6),
        (1, 1, 3, 0),
    ):
        got = run(tmp_path / "run", tiny_text, world, on_a_node, **{"mesh.zero": zero, "train.stop_at": stop})
        assert got.step == (stop or 8)
    assert got.final_hash == want.final_hash and rows(tmp_path / "run") == rows(tmp_path / "one")


@pytest.mark.parametrize("optimizer", [False, True])
def test_cut_weights_start_from_those_of_another_run(
    tiny_text: Path, tmp_path: Path, optimizer: bool
) -> None:
    run(tmp_path / "old", tiny_text, 1)
    start = {"start.load_parameters_path": str(tmp_path / "old"), "start.keep_optimizer": optimizer}
    want = run(tmp_path / "one", tiny_text, 1, **start)
    assert run(tmp_path / "two", tiny_text, 2, 1, **{"mesh.zero": 3, **start}).final_hash == want.final_hash


def test_ranks_refuse_weights_that_do_not_fit_with_one_voice(tiny_text: Path, tmp_path: Path) -> None:
    run(tmp_path / "old", tiny_text, 1, **{"train.steps": 1})

    def work(comm: Any) -> Exception | None:
        start = {"start.load_parameters_path": str(tmp_path / "old"), "model.n_layer": 1, "mesh.zero": 3}
        try:
            with Trainer(config_of(tiny_text, **start), tmp_path / "new", comm=comm) as trainer:
                trainer.fit()
        except (UserError, ReportedElsewhereError) as error:
            return error
        return None

    first, second = on_ranks(work, 2, 1)
    assert isinstance(first, UserError) and "got a model of another size" in str(first)
    assert isinstance(second, ReportedElsewhereError) and second.exit_code == 2


def test_a_log_that_measures_whole_weights_is_refused_where_no_rank_has_them(
    tiny_text: Path, tmp_path: Path
) -> None:
    def work(comm: Any) -> Exception | None:
        try:
            run_config = config_of(tiny_text, **{"mesh.zero": 3, "log.weights": True})
            Trainer(run_config, tmp_path / "run", comm=comm).close()
        except (UserError, ReportedElsewhereError) as error:
            return error
        return None

    first, second = on_ranks(work, 2, 1)
    assert isinstance(first, UserError) and "zero=3 over several nodes: no rank has the whole weights" in str(
        first
    )
    assert isinstance(second, ReportedElsewhereError) and not (tmp_path / "run").exists()
    assert on_ranks(work, 2, 2) == [None, None]


def test_a_mesh_with_data_has_the_same_bits_and_may_change(tiny_text: Path, tmp_path: Path) -> None:
    want = run(tmp_path / "one", tiny_text, 1)
    mesh = {"mesh.fsdp": 2, "mesh.data": 2}
    assert run(tmp_path / "many", tiny_text, 4, 2, **mesh, **{"train.stop_at": 4}).step == 4
    assert run(tmp_path / "many", tiny_text, 2, 1).final_hash == want.final_hash


@pytest.mark.parametrize("worlds", [(1, 2, 4, 1), (4, 1, 2, 4)])
def test_a_run_goes_on_in_any_world(tiny_text: Path, tmp_path: Path, worlds: tuple[int, ...]) -> None:
    want = run(tmp_path / "one", tiny_text, 1)
    for world, stop in zip(worlds, (2, 4, 6, 0), strict=True):
        got = run(tmp_path / "run", tiny_text, world, **{"train.stop_at": stop})
        assert got.step == (stop or 8)
    assert got.final_hash == want.final_hash and rows(tmp_path / "run") == rows(tmp_path / "one")


def test_a_run_starts_from_weights_of_another(tiny_text: Path, tmp_path: Path) -> None:
    run(tmp_path / "old", tiny_text, 2)
    start = {"start.load_parameters_path": str(tmp_path / "old")}
    want = run(tmp_path / "one", tiny_text, 1, **start)
    assert run(tmp_path / "two", tiny_text, 2, **start).final_hash == want.final_hash


def test_the_ranks_make_one_token_cache(tiny_text: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", tiny_text, 4, **{"data.cache_dir": str(tmp_path / "cache"), "train.steps": 1})
    assert len([entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]) == 1


def test_another_text_on_one_rank_is_refused(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("another text, which is long enough for some tokens. " * 400)

    def work(comm: Any) -> Exception | None:
        text = {"data.path": str(other)} if comm.rank == 1 else {}
        try:
            Trainer(config_of(tiny_text, **text), comm=comm).close()
        except (UserError, ReportedElsewhereError) as error:
            return error
        return None

    first, second = on_ranks(work, 2)
    assert (
        isinstance(first, UserError)
        and "[ranks] rank 1 on " in str(first)
        and "text and tokenizer" in str(first)
    )
    assert isinstance(second, ReportedElsewhereError) and second.exit_code == 2


def test_a_run_whose_experts_are_on_several_ranks_is_that_of_one_process(
    tiny_text: Path, tmp_path: Path
) -> None:
    want = run(tmp_path / "one", tiny_text, 1, **MIXTURE)
    for number, (world, expert, stop) in enumerate(((2, 2, 3), (4, 4, 5), (1, 1, 6), (4, 2, 0))):
        fields = {**MIXTURE, "mesh.expert": expert, "train.stop_at": stop}
        got = run(tmp_path / "run", tiny_text, world, 1 if number == 0 else None, **fields)
    assert got.final_hash == want.final_hash and rows(tmp_path / "run") == rows(tmp_path / "one")
    texts = [
        [json.loads(line)["text"] for line in lines(tmp_path / name / "samples.jsonl")]
        for name in ("one", "run")
    ]
    assert texts[0] == texts[1]


def test_a_log_that_measures_whole_weights_is_refused_where_experts_are_dealt_out(
    tiny_text: Path, tmp_path: Path
) -> None:
    def work(comm: Any) -> str:
        fields = {**MIXTURE, "mesh.expert": 2, "log.weights": True}
        with pytest.raises((UserError, ReportedElsewhereError)) as caught:
            Trainer(config_of(tiny_text, **fields), tmp_path / "run", comm=comm).close()
        return str(caught.value)

    assert "expert=2: no rank has the whole weights" in on_ranks(work, 2)[0]
    assert not (tmp_path / "run").exists()
