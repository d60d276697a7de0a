"""`report RUN` prints the curve and the last log entries: to a pipe, on terminals, for runs in every state."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudd_core.base.show.terminal import locale_is_utf8
from places import ROOT
from tiny_run import TinyRun

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = TinyRun(
        tmp_path_factory.mktemp("report") / "run", tiny_text, ("train.steps=8", "train.eval_every=4")
    )
    run.finished()
    return run.workdir


def environment(**names: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    return {**kept, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", **names}


def report(run: Path, **names: str) -> str:
    """Return the output of the command in a pipe."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "report", str(run)],
        env=environment(**names),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def on_terminal(run: Path, columns: int, **names: str) -> str:
    """Return the output of the command on a terminal with `columns` columns."""
    master, slave = pty.openpty()
    command = f'stty cols {columns}; exec "$0" "$1" report "$2"'
    process = subprocess.Popen(
        ["sh", "-c", command, sys.executable, str(ROOT / "launch.py"), str(run)],
        env=environment(**names),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    printed = b""
    try:
        while part := os.read(master, 1 << 16):
            printed += part
    except OSError:  # EIO: the terminal's other end is closed
        pass
    os.close(master)
    assert process.wait(60) == 0, printed
    return printed.decode().replace("\r\n", "\n")


def changed(trained: Path, tmp_path: Path, change: Callable[[Rows], Rows], torn: str = "") -> Path:
    """Return a copy of the run with other log entries. torn: the start of one more entry."""
    run = tmp_path / "copy"
    shutil.copytree(trained, run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = "".join(json.dumps(row) + "\n" for row in change(rows))
    (run / "metrics.jsonl").write_text(lines + torn)
    return run


def chart_of(printed: str) -> list[str]:
    """Return the lines of the curve and of the last metrics: after the result, and before the settings."""
    lines = printed.splitlines()
    (end,) = (i for i, line in enumerate(lines) if line.startswith("fields that differ"))
    return lines[1 : end - 1]


def test_a_pipe_gets_ascii_in_80_columns(trained: Path) -> None:
    for names in ({}, {"LANG": "C.UTF-8"}, {"COLUMNS": "200"}):
        lines = chart_of(report(trained, **names))
        assert all(line.isascii() and len(line) <= 80 for line in lines)
        chart = [line.partition("|")[2] for line in lines if "|" in line]
        assert sum(line.count(".") for line in chart) >= 6  # a validation may cover one of the points
        assert sum(line.count("o") for line in chart) == 2
    table = lines[lines.index("") :]
    head = next(i for i, line in enumerate(table) if "grad norm" in line)
    assert [line.split()[0] for line in table[head + 1 : head + 6]] == ["4", "5", "6", "7", "8"]
    assert table[head + 6 :] == []


def test_a_report_starts_with_the_result_and_the_curve_then_has_the_changed_fields(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "loss" in row][-1]
    valid = [row for row in rows if "val_loss" in row][-1]
    lines = report(trained).splitlines()
    assert (
        f" in {trained}: step 8 of 8, loss {last['loss']:.4f}, validation loss {valid['val_loss']:.4f} at "
        in lines[0]
    )
    assert ". loss" in lines[2]
    fields = lines[lines.index(next(line for line in lines if line.startswith("fields that differ"))) + 1 :]
    assert next(line.split()[:2] for line in fields if "train.steps" in line) == ["train.steps", "8"]
    assert not any("optim.beta1" in line for line in lines)  # it has the default


def test_the_table_has_the_numbers_of_the_log(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if "loss" in row][-1]
    line = next(line for line in report(trained).splitlines() if line.split()[:1] == ["8"] and "%" in line)
    assert line.split()[1:5] == [
        f"{last['loss']:.4f}",
        f"{last['grad_norm']:.4g}",
        f"{last['lr']:.3e}",
        f"{last['tokens_per_second']:,.0f}",
    ]


def test_a_terminal_gets_its_width_and_braille_where_the_locale_is_utf8(trained: Path) -> None:
    wide = chart_of(on_terminal(trained, 120, LANG="en_US.UTF-8"))
    assert max(map(len, wide)) == 120
    assert any("\u2800" < mark <= "\u28ff" for line in wide for mark in line)
    plain = chart_of(on_terminal(trained, 60, LC_ALL="C", LANG="en_US.UTF-8"))
    assert all(map(str.isascii, plain))
    assert max(len(line) for line in plain if "|" in line or "+--" in line) == 60


@pytest.mark.parametrize(
    ("names", "utf8"),
    [
        ({}, False),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
        ({"LC_ALL": "", "LANG": "ja_JP.EUC-JP"}, False),
    ],
)
def test_the_locale_decides_as_for_c_programs(names: dict[str, str], utf8: bool) -> None:
    assert locale_is_utf8(names) is utf8


def test_a_run_without_validations_has_a_curve_without_dots(trained: Path, tmp_path: Path) -> None:
    run = changed(trained, tmp_path, lambda rows: [row for row in rows if "loss" in row])
    printed = report(run)
    assert ". loss\n" in printed and "o validation" not in printed and ": step 8 of 8, loss " in printed
    assert "val loss" not in printed and "val loss" in report(trained)


def test_a_running_run_is_shown_up_to_its_last_whole_row(trained: Path, tmp_path: Path) -> None:
    run = changed(trained, tmp_path, lambda rows: [row for row in rows if row["step"] < 6], '{"step": 6, "lo')
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints")
    printed = report(run)
    assert ": step 5 of 8, loss " in printed and "grad norm" in printed


def test_a_run_of_one_step_has_a_table_and_no_curve(trained: Path, tmp_path: Path) -> None:
    run = changed(trained, tmp_path, lambda rows: rows[:1])
    printed = report(run)
    assert "|" not in "\n".join(chart_of(printed)) and "grad norm" in printed
    run = changed(trained, tmp_path / "none", lambda rows: [])
    assert "grad norm" not in report(run)


def test_an_old_run_has_dashes_for_what_it_did_not_log(trained: Path, tmp_path: Path) -> None:
    def old(rows: Rows) -> Rows:
        for row in rows:
            row.pop("grad_norm", None)
            for name in ("peak_share", "phases", "load"):
                row.pop(name, None)
        return rows

    line = next(line for line in report(changed(trained, tmp_path, old)).splitlines() if "  -  " in line)
    assert line.split()[2] == "-" and line.split()[5] == "-"


def test_skipped_updates_and_losses_that_are_not_finite_are_named(trained: Path, tmp_path: Path) -> None:
    def broken(rows: Rows) -> Rows:
        rows[-2] |= {"loss": None, "skipped": True}
        return rows

    lines = report(changed(trained, tmp_path, broken)).splitlines()
    assert any("not finite" in line and line.endswith("skipped") for line in lines)
