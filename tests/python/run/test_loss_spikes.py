"""Loss spikes: the rule, a planted spike whose sequences are named, and report --spikes."""

from __future__ import annotations

import json
import random
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.run.loop.spike_rows import losses_by_document
from mudd_core.run.report.spikes import LEAST, WINDOW, spikes_in, spikes_of
from tiny_run import TinyRun, write_text


def expected(losses: Sequence[float]) -> dict[int, float]:
    """Return the deviations of each spike by its place, computed one step at a time."""
    found = {}
    for at in range(LEAST, len(losses)):
        before = losses[max(0, at - WINDOW) : at]
        median = statistics.median(before)
        deviation = 1.4826 * statistics.median(abs(one - median) for one in before)
        deviation = max(deviation, 1e-4 * abs(median))
        if losses[at] > median + 6 * deviation:
            found[at] = (losses[at] - median) / deviation
    return found


@pytest.mark.parametrize("count", [0, LEAST, LEAST + 1, WINDOW, WINDOW + 1, 400])
def test_the_rule_is_the_one_of_single_steps(count: int) -> None:
    rng = np.random.default_rng(count)
    losses = 3 + np.exp(-np.arange(count) / 60) + rng.normal(0, 0.05, count) * (np.arange(count) % 90 < 80)
    losses[rng.random(count) < 0.03] += 2
    found = {one.step: one.deviations for one in spikes_of(np.arange(count), losses)}
    assert found.keys() == expected(losses.tolist()).keys()
    for step, deviations in expected(losses.tolist()).items():
        assert found[step] == pytest.approx(deviations)
    assert count < 400 or len(found) > 5


def test_losses_that_are_not_finite_and_validations_are_left_out() -> None:
    losses: list[float | None] = np.random.default_rng(1).normal(2, 0.01, 60).tolist()
    losses[40] = None
    losses[50] = 9.0
    rows: list[dict[str, Any]] = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    rows.append({"step": 59, "val_loss": 50.0})
    assert [one.step for one in spikes_in(rows)] == [50]
    assert not spikes_of(np.arange(100), np.full(100, 2.0))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a finished run whose text has three documents of random characters of another script."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "text").mkdir()
    write_text(folder / "text")
    draw = random.Random(5)
    for number in range(3):
        text = "".join(chr(draw.randint(0x4E00, 0x9EFF)) for _ in range(200))
        (folder / "text" / f"{30 + number}b.txt").write_text(text)
    words = ("train.keep_last=0", "train.save_every=50")
    return TinyRun(folder / "run", folder / "text", words=words).trained()


def test_the_worst_sequences_are_the_planted_documents(
    planted: TinyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(planted.workdir), "--spikes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "mudd_core.spikes/1" and found["reason"] is None
    spikes = {one["step"]: one for one in found["spikes"]}
    rows = {row["step"]: row for row in planted.rows() if "val_loss" not in row}
    assert spikes and all(rows[step]["loss"] == one["loss"] for step, one in spikes.items())
    assert found["step"] == max(spikes.values(), key=lambda one: one["deviations"])["step"]
    sequences = found["sequences"]
    assert [one["loss"] for one in sequences] == sorted((one["loss"] for one in sequences), reverse=True)
    strange = [any(0x4E00 <= ord(c) <= 0x9EFF for c in one["documents"][0]["text"]) for one in sequences]
    assert strange[0] and not any(strange[strange.index(False) :])
    (number,) = {one["documents"][0]["number"] for one, odd in zip(sequences, strange, strict=True) if odd}
    names = {
        Path(one["documents"][0]["file"]).name for one, odd in zip(sequences, strange, strict=True) if odd
    }
    assert names <= {"30b.txt", "31b.txt", "32b.txt"} and len(names) == 1
    # The number is the position among the training documents of the token cache.
    config = mc.load_run(planted.workdir).config
    cache = next(Path(config.data.cache_dir).glob("*/tokens.h5")).parent
    from mudd_core.data.cache.token_cache import open_cache

    opened = open_cache(cache)
    starts = opened.document_starts("train").tolist()
    ids = opened.tokens("train")[starts[number] : starts[number] + 60]
    assert 0x4E00 <= ord(opened.tokenizer.decode(ids.tolist())[0]) <= 0x9EFF
    total = sum(one["loss"] * one["targets"] for one in sequences) / sum(one["targets"] for one in sequences)
    # The mean over all sequences is the loss of the update; NumPy adds in another order.
    assert total == pytest.approx(spikes[found["step"]]["loss"], rel=1e-5)
    for one in sequences:
        parts = one["documents"]
        assert sum(part["targets"] for part in parts) == one["targets"]
        # The sums are in another order.
        assert sum(part["targets"] * part["loss"] for part in parts) == pytest.approx(
            one["loss"] * one["targets"], rel=1e-5
        )


def test_the_reports_name_the_spikes(planted: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(planted.workdir)
    assert main(["report", run]) == 0
    said = capsys.readouterr().out
    assert "loss spikes: " in said and "--spikes shows its sequences" in said
    assert main(["report", run, "--spikes"]) == 0
    said = capsys.readouterr().out
    assert "robust deviations above the median of the 50 logged steps before" in said
    assert "in memory from the checkpoint of step" in said and "by their loss before the update" in said
    step = next(row["step"] for row in planted.rows() if row["step"] > 60)
    assert main(["report", run, f"--spikes={step}"]) == 0
    assert f"sequences of step {step} by their loss" in capsys.readouterr().out
    page = planted.workdir.with_name("page.html")
    assert main(["report", run, f"--html={page}"]) == 0
    assert "Loss spikes" in page.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--spikes=x"], "--spikes: expected the number of a step, got 'x'; type --spikes=STEP"),
        (["--spikes=0"], "--spikes: expected the number of a step, got '0'"),
        (["--spikes=161"], "--spikes: expected at most 160, the last update of"),
        (["--spikes", "--html"], "--html: expected no --spikes with it"),
    ],
)
def test_wrong_arguments_are_refused(
    planted: TinyRun, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(planted.workdir), *words]) == 2
    assert message in "".join(capsys.readouterr())


def test_a_run_whose_text_is_gone_lists_its_spikes(
    planted: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(planted.workdir, tmp_path / "run")
    file = tmp_path / "run/config.json"
    config = json.loads(file.read_text())
    config["data"] |= {"path": str(tmp_path / "gone"), "cache_dir": str(tmp_path / "cache")}
    file.write_text(json.dumps(config))
    assert main(["report", str(tmp_path / "run"), "--spikes"]) == 0
    said = capsys.readouterr().out
    assert "are not shown: " in said and str(tmp_path / "gone") in said
    with pytest.raises(UserError):
        mc.Trainer(tmp_path / "run", at_step=60)


def test_a_run_with_too_few_logged_steps_says_so(
    planted: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(planted.workdir, tmp_path / "run")
    file = tmp_path / "run/metrics.jsonl"
    lines = [line for line in file.read_text().splitlines(keepends=True) if '"loss"' in line]
    for count in (LEAST, LEAST + 1):
        file.write_text("".join(lines[:count]))
        assert main(["report", str(tmp_path / "run"), "--spikes"]) == 0
        said = capsys.readouterr().out
        few = f"no step was compared: a step needs at least {LEAST} logged steps before it, and the run has {count} in"
        assert (few in said) == (count == LEAST) and ("no step has a loss" in said) == (count > LEAST)
        assert main(["report", str(tmp_path / "run"), "--spikes", "--json"]) == 0
        reason = json.loads(capsys.readouterr().out)["reason"]
        assert reason is None if count > LEAST else few in reason


def test_the_documents_of_a_sequence_cover_its_targets(planted: TinyRun) -> None:
    with mc.Trainer(planted.workdir, at_step=100) as trainer:
        losses, rows = trainer.token_losses(), trainer.batch_text()
        for row in rows:
            assert [one.start for one in row.documents[1:]] == [one.end for one in row.documents[:-1]]
            assert row.documents[0].start == 0 and row.documents[-1].end == losses.shape[1]
        ranked = losses_by_document(trainer)
        assert {one.row.row for one in ranked} == set(range(8))
        record = trainer.step()
    # NumPy adds in another order.
    assert record.loss == pytest.approx(float(losses.mean()), rel=1e-5)
