"""The first lines of a run: four if it starts, and only the error if it does not."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint_cases import faults
from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of
from mudd_core.base.errors import FormatError
from mudd_core.cli import main
from mudd_core.config import TrainConfig
from mudd_core.data.progress import ConsoleProgress
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.screen import Screen
from places import ROOT
from tiny_run import CONFIG, TinyRun

KEPT = (ROOT / "tests" / "data" / "cli" / "starts.txt").read_text(encoding="utf-8")
FOUR = ("model     ", "data      ", "schedule  ", "writes    ")


def test_every_start_prints_what_is_kept() -> None:
    command = [sys.executable, str(ROOT / "tests" / "start_screens.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    # If this fails: run python tests/start_screens.py --write, and read the screens.
    assert done.stdout.splitlines() == KEPT.splitlines()


def test_a_start_is_four_lines_and_an_error_is_the_last_line_of_the_screen() -> None:
    entries = [entry.splitlines() for entry in KEPT.strip().split("\n\n")]
    assert len(entries) >= 16
    for entry in entries:
        lines = [line for line in entry[1:-1] if not line.startswith(("data: ", "warning: "))]
        if entry[-1] == "exit code 75":
            assert len(lines) == 4 and all(map(str.startswith, lines, FOUR)), entry
        else:
            errors = [line for line in lines if not line.startswith(FOUR)]
            assert errors[0].startswith("error: "), entry


def test_the_whole_config_is_in_the_log_and_on_the_screen_of_verbose(tmp_path: Path, tiny_text: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=2",))
    run.finished()
    log, section = (run.workdir / "log.txt").read_text(), "optim: name='adamw'"
    assert section in log and "corpus      SHA-256" in log and re.search(r"^config [0-9a-f]{16} ", log, re.M)
    assert section not in run.output and "SHA-256" not in run.output
    loud = TinyRun(tmp_path / "loud", tiny_text, ("train.steps=2", "--verbose"))
    loud.finished()
    whole = (loud.workdir / "log.txt").read_text()
    assert section in loud.output and whole.count(section) == 1


def test_a_full_disk_is_one_line(tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--config={CONFIG}", f"--workdir={tmp_path / 'run'}", f"data.path={tiny_text}"]
    with faults(shrink_free_space=(1 << 10,)):
        assert main([*words, f"data.cache_dir={tmp_path / 'cache'}"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and shown.err.startswith("error: [workdir]")


def test_lines_of_a_start_wait_until_it_has_succeeded(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    screen = Screen(progress, TrainConfig(), waits=True)
    screen.said("a note")
    screen.warned("a fault")
    assert capsys.readouterr() == ("", "")
    screen.opened(lambda: (["model"], ["config"]))
    screen.said("step 1")
    assert capsys.readouterr() == ("model\na note\nstep 1\n", "warning: a fault\n")


def test_a_resume_that_fails_prints_none_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, assembly = config_of("train.keep_last=2"), fake_assembly(FakeEngine())
    with Trainer(config, tmp_path, assemble=assembly) as trainer:
        trainer.fit(progress=False)
    for file in (tmp_path / "checkpoints").glob("*/model-*"):
        file.write_bytes(b"x")
    with pytest.raises(FormatError):
        Trainer(config, tmp_path, progress=Progress(), assemble=assembly)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_work_on_data_is_one_line() -> None:
    for stream, shown in (
        (io.StringIO(), "data: preparing\ndata: left out\n"),
        (
            Terminal(),
            "\r\x1b[Kdata: reading  10 %\r\x1b[K\r\x1b[Kdata: encoding   0 %\r\x1b[Kdata: left out\n",
        ),
    ):
        progress = ConsoleProgress(stream, "preparing")
        for phase, done, total in (("reading", 1, 10), ("reading", 10, 10), ("encoding", 0, 10)):
            progress(phase, done, total)
        progress("left out", 0, 0)
        progress.close()
        assert stream.getvalue() == shown
