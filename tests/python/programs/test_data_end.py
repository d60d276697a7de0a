"""Runs that end when their data end: MaxText's commands, whose steps are only an upper limit."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import documents
from document_sizes import (
    OF_MUDDFORMER,
    OF_TOKENFORMER,
    STREAMS,
    texts,
    with_keys,
    write_lines,
    write_records,
)
from mudd_core.checkpoint import list_steps
from mudd_core.cli import main
from mudd_core.run.store.run_store import RunStore

STEPS = 9  # 18 records in batches of 2


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the document's command on records of ids, without steps."""
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path / "records")
    command = next(c.words for c in documents.commands("muddformer") if "hardware=tpu" in c.words)
    assert not any(word.startswith("steps=") for word in command)
    keys = [key for key in f"{OF_MUDDFORMER} {STREAMS} run_name=mudd".split() if not key.startswith("steps=")]
    schedule = "learning_rate_schedule_steps=12 warmup_steps_fraction=0.5"
    kept = [key for key in keys if not key.startswith("learning_rate_schedule_steps=")]
    return with_keys(command, " ".join([*kept, *schedule.split()]))


def summary(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "summary.json").read_text())
    return found


def rates(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["lr"] for row in rows if "lr" in row]


def test_the_documents_own_command_trains_until_its_data_end(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--plan"]) == 0
    assert "as many as the data have (data.epochs=1), at most 10,000,000" in capsys.readouterr().out
    run = tmp_path / "mudd"
    assert main([*words, "train.log_every=1"]) == 0
    printed = capsys.readouterr().out
    note = "the data have 9 batches (data.epochs=1): the run ends at step 9, before train.steps=10,000,000"
    assert note in printed and "done: 9 steps" in printed and "; the data end here" in printed
    found = summary(run)
    assert (found["step"], found["steps"], found["data_end"], found["stopped"]) == (STEPS, STEPS, True, None)
    assert isinstance(found["val_loss"], float) and STEPS in list_steps(run / "checkpoints")
    saved = json.loads((run / "config.json").read_text())
    assert saved["train"]["steps"] == 10_000_000 and saved["optim"]["schedule_steps"] == 12
    assert rates(run)[:7] == pytest.approx(
        [3e-4 * t / 6 for t in range(7)]
    )  # as in the schedule, which does not use the 9 steps
    assert main(words) == 0
    assert "is finished." in capsys.readouterr().out


def test_a_stopped_run_resumes_to_the_same_bits(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [word.replace("run_name=mudd", "run_name=whole") for word in words]
    assert main(other) == 0 and main([*words, "train.stop_at=4"]) == 75
    assert "at step 4 of 9" in capsys.readouterr().out
    assert main([*words, "train.stop_at=0"]) == 0
    hashes = {summary(tmp_path / name)["final_hash"] for name in ("whole", "mudd")}
    assert len(hashes) == 1


def test_a_schedule_as_long_as_the_steps_keeps_its_length(words: list[str], tmp_path: Path) -> None:
    plain = [word for word in words if not word.startswith("warmup")]
    kept = [word for word in plain if not word.startswith("learning_rate_schedule_steps")]
    assert main([*kept, "learning_rate_schedule_steps=-1", "steps=1000", "train.log_every=1"]) == 0
    assert rates(tmp_path / "mudd") == pytest.approx([3e-4 * t / 10 for t in range(9)])  # 1 % of 1,000 steps


def test_data_without_a_whole_batch_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    large = [word for word in words if not word.startswith("per_device_batch_size")]
    assert main([*large, "per_device_batch_size=64"]) == 2
    assert "expected a batch of 64 sequences" in capsys.readouterr().err


def test_a_larger_epoch_continues_a_run_that_ended_with_its_data(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check for the bits of an unbroken run: an epoch of complete batches is the start of the longer order."""
    other = [word.replace("run_name=mudd", "run_name=whole") for word in words]
    assert main([*other, "epoch=2"]) == 0 and summary(tmp_path / "whole")["step"] == 2 * STEPS
    assert main(words) == 0 and summary(tmp_path / "mudd")["data_epochs"] == 1
    capsys.readouterr()
    assert main([*words, "epoch=2"]) == 0
    assert "resumed from step 9 " in (printed := capsys.readouterr().out) and "data.epochs=2" in printed
    hashes = {summary(tmp_path / name)["final_hash"] for name in ("whole", "mudd")}
    assert len(hashes) == 1 and summary(tmp_path / "mudd")["step"] == 2 * STEPS
    assert main([*words, "epoch=2"]) == 0
    said, command = capsys.readouterr().out.splitlines()[:2]
    assert said.endswith(" is finished. To train one more epoch:")
    assert main([*shlex.split(command)[2:], "--plan"]) == 0
    assert shlex.split(command)[-1] == "data.epochs=3" and capsys.readouterr().out
    assert main(words) == 2  # fewer epochs are rejected
    assert "data.epochs: saved 2, asked 1" in capsys.readouterr().err


def test_a_summary_of_an_earlier_version_ended_with_the_saved_epochs(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(words) == 0
    file = tmp_path / "mudd/summary.json"
    earlier = {name: value for name, value in summary(tmp_path / "mudd").items() if name != "data_epochs"}
    file.write_text(json.dumps(earlier))
    capsys.readouterr()
    assert main(words) == 0 and "is finished." in capsys.readouterr().out
    with monkeypatch.context() as patched:  # a killed run writes no summary
        patched.setattr(RunStore, "finish", lambda *_: None)
        assert main([*words, "epoch=2", "train.stop_at=9"]) == 75
    assert summary(tmp_path / "mudd") == {**earlier, "data_epochs": 1}
    assert main([*words, "epoch=2", "train.stop_at=0"]) == 0
    assert summary(tmp_path / "mudd")["step"] == 2 * STEPS


def test_a_stream_ends_the_run_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare with a cache of the same text; a stream's length is unknown in advance."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "train.jsonl", texts(80))
    write_lines(tmp_path / "validation.jsonl", texts(12))
    first = documents.commands("tokenformer")[0].words
    keys = f"{OF_TOKENFORMER} data.cache_dir=cache slot_num=8 epoch=1 steps=1000 base_output_directory="
    for name, cache in (("cached", "full"), ("streamed", "stream")):
        typed = with_keys(first, f"{keys} run_name={name}")
        assert main([*typed, f"data.cache={cache}"]) == 0, capsys.readouterr().err
    found = [summary(tmp_path / name) for name in ("cached", "streamed")]
    assert found[0]["final_hash"] == found[1]["final_hash"] and found[0]["step"] == found[1]["step"]
    assert all(one["data_end"] is True and one["steps"] == one["step"] for one in found)
    for name, cache in (("cached", "full"), ("streamed", "stream")):
        typed = with_keys(first, f"{keys.replace('epoch=1', 'epoch=2')} run_name={name}")
        assert main([*typed, f"data.cache={cache}"]) == 0, capsys.readouterr().err
    longer = [summary(tmp_path / name) for name in ("cached", "streamed")]
    assert longer[0]["final_hash"] == longer[1]["final_hash"] != found[0]["final_hash"]
    assert longer[0]["step"] == longer[1]["step"] == 32
