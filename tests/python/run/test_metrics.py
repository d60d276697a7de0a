"""The metrics log, TensorBoard events, the progress line and the estimated time left."""

from __future__ import annotations

import errno
import io
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from event_files import events_of
from mudd_core.base.errors import FormatError
from mudd_core.base.framing import EventFiles
from mudd_core.base.units import duration
from mudd_core.config import GPT2Config, TransformerPPConfig
from mudd_core.engine.flops import flops_per_token
from mudd_core.run.loop.clock import Clock
from mudd_core.run.records.events import numbers_of
from mudd_core.run.store.log_files import MetricsLog
from mudd_core.run.store.metrics import read_rows
from mudd_core.run.store.run_folder import RunFolder


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_survive_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import os,sys,pathlib; from mudd_core.run.store.log_files import MetricsLog\n"
        "log = MetricsLog(pathlib.Path(sys.argv[1])); log.append({'step': 1, 'loss': 0.1}); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.jsonl")], check=False)
    assert done.returncode == 9
    assert rows_of(tmp_path / "m.jsonl") == [{"step": 1, "loss": 0.1}]


def test_resume_cuts_back_to_the_step_and_drops_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(
        '{"step": 1, "loss": 3.5}\n{"step": 2}\n{"step": 2, "val_loss": 1}\n{"step": 3}\n{"step": 4, "lo'
    )
    log = MetricsLog(path, resumed_step=2)
    log.append({"step": 3, "loss": 1 / 3})
    log.close()
    assert [row["step"] for row in rows_of(path)] == [1, 2, 2, 3]
    assert rows_of(path)[-1]["loss"] == 1 / 3  # the value has the same bits after reading


def test_a_new_run_starts_with_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n')
    MetricsLog(path, resumed_step=0).close()
    assert path.read_text() == ""


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(FormatError, match="at byte 12: line 2 is damaged"):
        list(read_rows(path))
    for line in (b"7", b"[]", b'{"loss": 1}', b'{"step": "1"}', b"[" * 10**5, b"\xff"):
        path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
        with pytest.raises(FormatError, match="line 2"):
            MetricsLog(path, resumed_step=3)
    path.write_text('{"step": 1}\n\0\0\0\n')
    assert list(read_rows(path)) == [{"step": 1}]


def test_rows_that_a_full_disk_refuses_wait_and_none_is_torn(tmp_path: Path) -> None:
    class Disk(io.FileIO):
        room = 10**6

        def write(self, data: Any) -> int:  # type: ignore[override]
            if self.room == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = super().write(bytes(data[: self.room]))
            self.room -= written
            return written

    log = MetricsLog(tmp_path / "m.jsonl")
    log._file.close()
    log._file = disk = Disk(tmp_path / "m.jsonl", "ab")
    log.append({"step": 1})
    disk.room = 5
    for step in (2, 3):
        with pytest.raises(OSError, match="No space"):
            log.append({"step": step})
    with pytest.raises(OSError, match="No space"):
        log.sync()
    assert (tmp_path / "m.jsonl").stat().st_size == len('{"step": 1}\n') + 5
    disk.room = 10**6
    log.append({"step": 4})
    log.close()
    log.close()
    assert [row["step"] for row in rows_of(tmp_path / "m.jsonl")] == [1, 2, 3, 4]


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m.jsonl")
    log.append({"step": 1, "loss": math.nan, "load": [[0.5, math.inf]], "lr": 0.5})
    log.close()
    assert rows_of(tmp_path / "m.jsonl") == [{"step": 1, "loss": None, "load": [[0.5, None]], "lr": 0.5}]


def test_board_writes_events_that_others_can_read(tmp_path: Path) -> None:
    board = EventFiles(RunFolder(tmp_path).board_folder, resumed_step=600)
    row = {"step": 700, "loss": 2.5, "skipped": True, "lr": None}
    board.append(700, dict(numbers_of("train", row)))
    board.append(700, dict(numbers_of("valid", {"step": 700, "val_loss": 1.25})))
    board.close()
    version, purge, train, valid = events_of(tmp_path / "tensorboard")
    assert version.file_version == "brain.Event:2" and abs(version.wall_time - time.time()) < 60
    assert (purge.step, purge.session_log.status) == (601, purge.session_log.START)
    assert [(v.tag, v.simple_value) for v in train.summary.value] == [
        ("train/loss", 2.5),
        ("train/skipped", 1.0),
    ]
    assert (valid.step, valid.summary.value[0].tag, valid.summary.value[0].simple_value) == (
        700,
        "valid/val_loss",
        1.25,
    )


def test_a_new_run_purges_nothing_and_an_empty_board_makes_no_file(tmp_path: Path) -> None:
    board = EventFiles(RunFolder(tmp_path / "a").board_folder)
    board.append(1, {"train/loss": 1.0})
    board.close()
    assert [event.HasField("session_log") for event in events_of(tmp_path / "a" / "tensorboard")] == [
        False,
        False,
    ]
    EventFiles(RunFolder(tmp_path / "b").board_folder).close()
    assert not (tmp_path / "b").exists()


def test_a_run_killed_before_its_first_checkpoint_has_each_step_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).board_folder
    for loss in (1.0, 2.0):  # the second start is at step 0 again
        board = EventFiles(folder, resumed_step=0)
        board.append(1, {"train/loss": loss})
        board.close()
    starts = [event for event in events_of(tmp_path / "tensorboard") if event.HasField("session_log")]
    assert [(event.step, event.session_log.status) for event in starts] == [(1, 1)]
    later = EventFiles(folder)  # an evaluation of other weights keeps all steps
    later.add(5, {"valid/val_loss": 1.0})
    later.close()
    assert sum(event.HasField("session_log") for event in events_of(tmp_path / "tensorboard")) == 1


def test_durations() -> None:
    shown = [duration(s) for s in (0, 59.4, 60, 750, 3600, 86399, 190000, math.nan)]
    assert shown == ["0s", "59s", "1m00s", "12m30s", "1h00m", "23h59m", "2d04h", "?"]


def test_time_left_counts_steps_validations_and_saves() -> None:
    clock = Clock(steps=100, eval_every=30, save_every=50, eval_tokens_per_step_token=6.0)
    assert math.isnan(clock.seconds_left(0))
    clock.took_step(9.0)  # the first step is slow and ignored
    clock.took_step(2.0)
    # after step 20: 80 steps, validations at 30, 60, 90 and 100, saves at 50 and 100
    assert clock.seconds_left(20) == pytest.approx(80 * 2 + 4 * 6.0 * 2 / 3)
    clock.took("eval", 7.0)
    clock.took("save", 3.0)
    assert clock.seconds_left(20) == pytest.approx(80 * 2 + 4 * 7 + 2 * 3)
    assert clock.seconds_left(99) == pytest.approx(2 + 7 + 3)
    assert clock.seconds_left(100) == pytest.approx(7 + 3)
    assert clock.seconds_left(50) == pytest.approx(
        50 * 2 + 3 * 7 + 2 * 3
    )  # the save of step 50 is still to come
    late = Clock(steps=101, eval_every=0, save_every=50, eval_tokens_per_step_token=0.0, start=1)
    late.took("save", 3.0)
    late.took_step(0.0)
    # saves at 51 and 101, which is also the end
    assert [late.seconds_left(step) for step in (1, 50, 51, 52, 101)] == [6, 6, 6, 3, 3]


def test_time_left_forgets_slowly() -> None:
    clock = Clock(10, 0, 0, 0.0)
    for seconds in (5.0, 1.0, 1.0, 3.0):
        clock.took_step(seconds)
    assert clock.seconds_left(9) == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("vocab", "layers", "width", "heads", "inner", "seq_len", "mflop"),
    [
        (8192, 6, 256, 4, 704, 256, 43.9),
        (16384, 12, 512, 8, 1408, 512, 300),
        (50304, 12, 768, 12, 2048, 512, 770),
    ],
)
def test_flops_of_the_bench_shapes(
    vocab: int, layers: int, width: int, heads: int, inner: int, seq_len: int, mflop: float
) -> None:
    model = TransformerPPConfig(d_model=width, n_layer=layers, n_head=heads, d_ff=inner)
    # The expected values have three digits.
    assert flops_per_token(model, vocab, seq_len) / 1e6 == pytest.approx(mflop, rel=0.01)


def test_flops_of_gpt2_and_of_grouped_heads() -> None:
    gpt2 = GPT2Config(d_model=8, n_layer=2, n_head=2, d_ff=32)
    assert flops_per_token(gpt2, 10, 4) == 6 * (2 * (4 * 64 + 2 * 8 * 32) + 80) + 6 * 2 * 4 * 8
    grouped = TransformerPPConfig(d_model=8, n_layer=1, n_head=4, n_kv_head=2, d_ff=16)
    assert flops_per_token(grouped, 10, 4) == 6 * (2 * 64 + 2 * 32 + 3 * 128 + 80) + 6 * 4 * 8
