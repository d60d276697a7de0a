"""Runs with a table of n-grams: stop and resume, a larger table, a table for a trained model, samples, plans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import cli
from mudd_core.base.errors import UserError
from mudd_core.run.report.start_lines import Start, start_lines
from small_models import make_batch
from tiny_run import TinyRun

SHORT = ("train.steps=6", "train.save_every=3", "train.eval_every=0", "optim.warmup_steps=2")
TABLE = (*SHORT, "model.ngram_rows=40", "model.ngram_width=12")


def logits(run: TinyRun) -> np.ndarray:
    """Return the logits of the newest checkpoint for the same random tokens."""
    return mc.load_run(run.workdir).model.logits(make_batch(256, 2, 32)["inputs"])


def start_of(run: TinyRun, *more: str) -> tuple[str, ...]:
    """Return the arguments of a run that starts from the weights of another one and saves them without a step."""
    return (*SHORT, f"start.load_parameters_path={run.workdir}", *more)


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return TinyRun(tmp_path_factory.mktemp("ngrams") / "run", tiny_text, TABLE).trained()


def test_a_stopped_run_resumes_with_its_bits(trained: TinyRun, tiny_text: Path, tmp_path: Path) -> None:
    TinyRun(tmp_path / "run", tiny_text, (*TABLE, "train.stop_at=2")).stopped()
    again = TinyRun(tmp_path / "run", tiny_text, TABLE).finished()
    assert again.same_as(trained)


def test_a_table_with_more_rows_computes_the_same_logits(
    trained: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    words = start_of(trained, "model.ngram_rows=120", "model.ngram_width=12", "start.keep_optimizer=true")
    config = TinyRun(tmp_path / "more", tiny_text, words)
    with mc.Trainer(mc.load_config(str(config.config), config.command()[4:]), config.workdir) as trainer:
        before = mc.load_run(trained.workdir)
        table = np.array(before.model.parameters["ngrams.rows"])
        assert np.any(table)
        assert np.array_equal(trainer.model.parameters["ngrams.rows"], np.repeat(table, 3, axis=0))
        state = trainer.engine.state_tensors()
        assert np.array_equal(
            trainer.model.logits(make_batch(256, 2, 32)["inputs"]).view(np.int32),
            logits(trained).view(np.int32),
        )
        moment = state["row_moment/ngrams.rows"]
        assert moment.shape == (120,) and np.any(moment)
        assert np.array_equal(moment[::3], moment[2::3])
        assert trainer.engine.updates == 6
        trainer.step()
        assert not np.array_equal(trainer.model.parameters["ngrams.rows"], np.repeat(table, 3, axis=0))


def test_a_trained_model_can_get_a_table(tiny_text: Path, tmp_path: Path) -> None:
    plain = TinyRun(tmp_path / "plain", tiny_text, SHORT).trained()
    for keep in ("false", "true"):
        words = start_of(plain, "model.ngram_rows=50", f"start.keep_optimizer={keep}")
        made = TinyRun(tmp_path / keep, tiny_text, words)
        with mc.Trainer(mc.load_config(str(made.config), made.command()[4:]), made.workdir) as trainer:
            ids = make_batch(256, 2, 32)["inputs"]
            assert np.array_equal(trainer.model.logits(ids).view(np.int32), logits(plain).view(np.int32))
            trainer.step()
            assert np.any(trainer.model.parameters["ngrams.rows"])


def test_rows_that_are_no_multiple_and_a_lost_table_are_refused(
    trained: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    for more, message in (
        (
            ("model.ngram_rows=100", "model.ngram_width=12"),
            "expected a multiple of the 40 rows of the loaded table, got 100",
        ),
        (
            ("model.ngram_rows=80", "model.ngram_width=16"),
            ": ngram_width 12 there, 16 here",
        ),
        ((), "ngram_rows 40 there, 0 here"),
        (
            ("model.ngram_rows=80", "model.ngram_width=12", "model.ngram_layers=1"),
            ": ngram_layers '' there, '1' here",
        ),
        (
            ("model.ngram_rows=40", "model.ngram_width=12", "model.ngram_end=257"),
            "ngram_end: expected an id below",
        ),
    ):
        run = TinyRun(tmp_path / "other", tiny_text, start_of(trained, *more))
        with pytest.raises(UserError, match=message):
            mc.Trainer(mc.load_config(str(run.config), run.command()[4:]), run.workdir)


def test_an_export_is_refused_before_the_weights_are_read_except_by_its_own_names(
    trained: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", f"--workdir={trained.workdir}", f"--to={tmp_path / 'out'}"]
    for more, way_out in (([], "--system=own writes"), (["--gguf"], "--system=own instead of --gguf writes")):
        assert cli.main([*words, *more]) == 2
        said = capsys.readouterr().err
        assert "no other program has a table of n-grams" in said and way_out in said and "reading" not in said
    assert cli.main([*words, "--system=own"]) == 0
    again = mc.load(tmp_path / "out").model
    assert np.array_equal(again.logits(make_batch(256, 2, 32)["inputs"]), logits(trained))


@pytest.mark.parametrize(("rows", "tokens", "noted"), [(40, 3072, False), (40, 3071, True), (0, 3071, False)])
def test_a_run_says_that_its_table_reads_text_again(
    tiny_text: Path, tmp_path: Path, rows: int, tokens: int, noted: bool
) -> None:
    words = (*SHORT, f"model.ngram_rows={rows}")
    config = mc.load_config(str(TinyRun(tmp_path, tiny_text).config), [*words])
    start = Start(config, None, "1 thread", 1, 257, tokens, 0, True, True, 0, 1.0, False)
    notes = [line for line in start_lines(start) if "reads its text 1.0 times" in line]
    assert len(notes) == noted


def test_a_sample_and_a_plan(trained: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sample", str(trained.workdir), "--prompt", "una", "--max-tokens=8"]) == 0
    capsys.readouterr()
    assert cli.main([*trained.command()[2 : -len(TABLE)], *TABLE, "model.ngram_rows=1000000", "--plan"]) == 0
    assert "parameters    12,0" in capsys.readouterr().out
