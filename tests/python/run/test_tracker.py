"""Weights & Biases: modes, the contents of an offline run, and trackers that are missing, slow or crash."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_runs
from mudd_core.base.errors import UserError
from mudd_core.config import LogConfig
from mudd_core.run.report import tracker
from mudd_core.run.report.tracker import tracker_mode
from tiny_run import TinyRun


class FakeRun:
    """A fake for the parts of a wandb run that mudd_core uses; call number `dies` raises an error."""

    def __init__(self, dies: int = 10**9) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.summary: dict[str, Any] = {}
        self.finished = False
        self.dies = dies

    def log(self, values: dict[str, Any], step: int) -> None:
        if len(self.rows) >= self.dies:
            raise SystemExit("the service is gone")
        self.rows.append((step, values))

    def finish(self) -> None:
        self.finished = True


def fake(monkeypatch: pytest.MonkeyPatch, run: FakeRun) -> dict[str, Any]:
    """Install a fake wandb whose init returns this run. Return the arguments of init."""
    asked: dict[str, Any] = {}
    module = types.ModuleType("wandb")

    def init(**arguments: Any) -> FakeRun:
        asked.update(arguments)
        return run

    module.init, module.Settings = init, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return asked


@pytest.mark.parametrize(
    ("field", "variable", "mode"),
    [
        ("off", "online", "off"),
        ("offline", "", "offline"),
        ("online", "offline", "offline"),
        ("offline", "online", "online"),
        ("online", "disabled", "off"),
        ("online", "dryrun", "offline"),
        ("online", "nonsense", "online"),
    ],
)
def test_wandb_mode_wins_where_a_tracker_is_asked_for(
    field: str, variable: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    assert tracker_mode(LogConfig(wandb=field)) == mode


def test_a_run_gives_its_numbers_config_and_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    asked = fake(monkeypatch, run)
    words = ("log.wandb=offline", "log.wandb_project=mine", "log.wandb_run=abc")
    with fake_runs.make(tmp_path, None, *words) as trainer:
        trainer.fit()
    assert (asked["project"], asked["id"], asked["mode"]) == ("mine", "abc", "offline")
    assert asked["dir"] == str(tmp_path)
    assert asked["config"]["train"]["steps"] == 20
    logged = [step for step, values in run.rows if "train/loss" in values]
    assert logged == list(range(2, 21, 2))
    assert [step for step, values in run.rows if "valid/val_loss" in values] == [8, 16, 20]
    assert run.summary["step"] == 20 and run.finished


def test_an_id_is_kept_for_the_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for word in ("train.stop_at=7", "train.stop_at=0"):
        asked = fake(monkeypatch, FakeRun())
        with fake_runs.make(tmp_path, None, "log.wandb=offline", word) as trainer:
            trainer.fit()
        ids.append(asked["id"])
    assert ids[0] == ids[1] != ""


@pytest.mark.parametrize("dies", [0, 3])
def test_a_tracker_that_dies_ends_no_run(
    dies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, FakeRun(dies))
    with fake_runs.make(tmp_path / "tracked", None, "log.wandb=offline") as trainer:
        found = trainer.fit().final_hash
    assert found == fake_runs.unbroken(tmp_path / "alone")
    assert capsys.readouterr().err.count("Weights & Biases") == 1


def test_a_tracker_that_hangs_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forever, run = threading.Event(), FakeRun()
    fake(monkeypatch, run)
    monkeypatch.setattr(run, "finish", forever.wait)
    monkeypatch.setattr(tracker, "FINISH_SECONDS", 0.1)
    with fake_runs.make(tmp_path, None, "log.wandb=offline") as trainer:
        trainer.fit()
    assert "it has not finished after" in capsys.readouterr().err
    forever.set()


def test_online_without_a_network_is_offline_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake(monkeypatch, FakeRun())
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    with fake_runs.make(tmp_path, None, "log.wandb=online") as trainer:
        trainer.fit()
    assert asked["mode"] == "offline"
    assert "offline, because 127.0.0.1" in capsys.readouterr().err


def test_a_tracker_that_is_not_installed_is_2_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"run setup wandb"):
        fake_runs.make(tmp_path / "run", None, "log.wandb=offline")
    assert not (tmp_path / "run").exists()


def records_of(file: Path) -> Iterator[bytes]:
    """Yield the records of a run file: a header of 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    data, at, whole = file.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole = (b"" if kind in (1, 2) else whole) + data[at + 7 : at + 7 + length]
        if kind in (1, 4):
            yield whole
        at += 7 + length


def test_an_offline_run_of_the_real_tracker_reads_back(tmp_path: Path, tiny_text: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    words = ("train.steps=4", "train.log_every=1", "log.wandb=offline", "log.wandb_run=tiny1")
    run = TinyRun(tmp_path / "run", tiny_text, words, {"WANDB_MODE": ""}).finished()
    assert "Weights & Biases:" not in run.output
    (file,) = (run.workdir / "wandb").glob("offline-run-*/run-tiny1.wandb")
    losses, config = {}, set()
    for data in records_of(file):
        record = Record.FromString(data)
        values = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "train/loss" in values:
            losses[record.history.step.num] = float(values["train/loss"])
        config |= {item.key for item in record.run.config.update}
    assert losses == {row["step"]: row["loss"] for row in run.rows() if "loss" in row}
    assert {"train", "model", "optim"} <= config
