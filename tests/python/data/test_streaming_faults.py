"""A stream whose files or processes are damaged, lost or killed: the error names them, or the bits are the same."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import streaming_cases as cases
from mudd_core import _core
from mudd_core.base.errors import FormatError, StopRequestedError, UserError
from mudd_core.data.streaming import processes
from mudd_core.data.streaming.processes import Processes
from mudd_core.run.loop import lost_source
from mudd_core.run.loop.lost_source import SourceLostError
from mudd_core.run.loop.trainer import Trainer
from places import HELPERS
from streaming_cases import BATCH, config_of, rows_of, write_texts

closed, small, texts = cases.closed, cases.small, cases.texts
KINDS = ("pack", "rows", "blocks")


def pids_of(rows: Any) -> list[int]:
    found: list[int] = rows._stream._processes.pids
    return found


def runs(pid: int) -> bool:
    """Return True if a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    """Wait until the processes have ended. They are not children of this process, so wait() cannot be used."""
    for _ in range(600):
        if not any(map(runs, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {pids}")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of waits for a lost source in seconds; the test does not really wait."""
    found: list[float] = []
    monkeypatch.setattr(lost_source, "pause", found.append)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_when_its_batch_comes(kind: str, tmp_path: Path, closed: list[Any]) -> None:
    folder = write_texts(tmp_path / "texts", (60, 60))
    write_texts(folder / "eval", (12,), 4)
    file = folder / "1.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:30], "no json\n", *lines[30:]]))
    words = [f"data.eval_path={folder}/eval", "data.shuffle=off", "data.workers=2"]
    rows = rows_of(config_of(kind, folder, "stream", *words))
    closed.append(rows)
    rows.arrays(0, BATCH)
    for _ in range(2):  # the damaged record is not skipped
        with pytest.raises(FormatError, match="is not JSON") as error:
            for batch in range(200):
                rows.arrays(batch * BATCH, BATCH)
        assert error.value.file == str(file)
        assert error.value.offset == sum(map(len, lines[:30]))


def test_too_few_rows_and_the_end_of_the_data(texts: Path, closed: list[Any]) -> None:
    def refused(kind: str, *words: str) -> str:
        rows = rows_of(config_of(kind, texts, "stream", f"data.eval_path={texts}/eval", *words))
        closed.append(rows)
        with pytest.raises(UserError) as error:
            rows.arrays(0, 2000)
        return str(error.value)

    assert "expected at least 250 documents" in refused("rows", "data.buffer=250")
    for kind in KINDS:
        full = rows_of(config_of(kind, texts, "full", f"data.eval_path={texts}/eval", "data.epochs=2"))
        end = full.batches(2)
        text = refused(kind, "data.epochs=2", "train.steps=900")
        assert f"the data end before batch {end} (data.epochs=2); set train.steps={end}" in text


def test_a_killed_process_is_replaced_and_no_bit_changes(
    texts: Path, tmp_path: Path, waits: list[float]
) -> None:
    config = config_of(
        "pack",
        texts,
        "stream",
        f"data.eval_path={texts}/eval",
        "data.workers=2",
        "train.steps=200",
        "train.save_every=0",
    )
    with Trainer(config) as trainer:
        whole = trainer.fit().final_hash
    with Trainer(config, tmp_path / "run") as trainer:
        take = trainer.engine.train_step
        first: list[int] = []

        def step(number: int, *arguments: Any, **named: Any) -> Any:
            if number == 3 and not first:
                first.extend(pids_of(trainer.engine.batcher))
                for pid in first:
                    os.kill(pid, signal.SIGKILL)
            return take(number, *arguments, **named)

        trainer.engine.train_step = step  # type: ignore[method-assign]
        assert trainer.fit().final_hash == whole
        events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
        (lost,) = [event for event in map(json.loads, events) if event["event"] == "source lost"]
        assert "that tokenizes ended with signal SIGKILL" in lost["file"] and ".jsonl (record" in lost["file"]
        later = pids_of(trainer.engine.batcher)
    assert waits == [1.0]
    wait_until_gone([*first, *later])


def test_a_vanished_file_is_waited_for_then_saved(texts: Path, tmp_path: Path, waits: list[float]) -> None:
    folder = write_texts(tmp_path / "texts", (20, 400))
    words = [f"data.eval_path={texts}/eval", "train.steps=90", "data.retries=2", "train.save_every=0"]
    config = config_of("rows", folder, "stream", *words)
    file, away = folder / "1.jsonl", tmp_path / "away"
    with Trainer(config) as trainer:
        whole = trainer.fit().final_hash
    with Trainer(config, tmp_path / "run") as trainer:
        trainer.step()
        file.rename(away)
        trainer.engine.batcher.close()
        with pytest.raises(
            SourceLostError, match=r"1.jsonl: No such file.* while step \d+ was read, 3 times"
        ):
            trainer.fit()
        assert 1 < trainer.step_done < 20
    away.rename(file)
    assert waits == [1.0, 2.0]
    with Trainer(config, tmp_path / "run") as trainer:
        assert trainer.fit().final_hash == whole


def test_a_stop_ends_waiting_for_a_process(
    texts: Path, monkeypatch: pytest.MonkeyPatch, closed: list[Any]
) -> None:
    monkeypatch.setattr(processes, "_PATIENCE", 0.0)
    rows: Any = rows_of(config_of("rows", texts, "stream", f"data.eval_path={texts}/eval"))
    closed.append(rows)
    rows.arrays(0, BATCH)
    for pid in pids_of(rows):
        os.kill(pid, signal.SIGSTOP)
    _core.request_stop()
    try:
        with pytest.raises(StopRequestedError, match=r"stop requested while .*jsonl was read"):
            rows.arrays(0, 400)
    finally:
        _core.clear_requests()


def test_signals_are_passed_over_and_processes_end_with_the_run(texts: Path) -> None:
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(HELPERS)!r})
from streaming_cases import config_of, rows_of
from pathlib import Path
rows = rows_of(config_of("rows", Path({str(texts)!r}), "stream", "data.eval_path={texts}/eval", "data.workers=2"))
rows.arrays(0, 2)
pids = rows._stream._processes.pids
for pid in pids:
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
rows.arrays(40, 2)
print(*pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    wait_until_gone(pids)


def test_what_fails_in_a_process_is_told(texts: Path, closed: list[Any]) -> None:
    rows: Any = rows_of(config_of("rows", texts, "stream", f"data.eval_path={texts}/eval"))
    rows.arrays(0, BATCH)
    told: Processes = rows._stream._processes
    closed.append(rows)
    ticket = told.submit({"do": "read", "file": 99}, file="a.jsonl", what="records 1 to 2")
    with pytest.raises(
        RuntimeError, match=r"a.jsonl, records 1 to 2: a process that tokenizes failed: KeyError"
    ):
        told.result(ticket)
    assert rows.arrays(BATCH, BATCH)["inputs"].shape == (BATCH, 16)


def test_a_file_that_may_not_be_read_is_refused() -> None:
    head = {"error": "lost", "errno": errno.EACCES, "text": "Permission denied", "path": "a.jsonl"}
    error = processes._error_of(head, "a.jsonl", "records 1 to 2")
    assert isinstance(error, UserError) and "cannot read a.jsonl: Permission denied" in str(error)
    assert isinstance(processes._error_of({**head, "errno": errno.ESTALE}, "", ""), OSError)
