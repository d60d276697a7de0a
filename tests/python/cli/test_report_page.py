"""`report RUN --html`: the path of the page, and runs that train, were killed, or have another program's log style."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from launched import called
from mudd_core.config.programs import NAMES
from own_cases import STATE_SPACE
from tiny_run import TinyRun


def report(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return called(folder or Path.cwd(), "report", *words)


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = TinyRun(
        tmp_path_factory.mktemp("pages") / "run", tiny_text, ("train.steps=12", "train.eval_every=4")
    )
    return run.trained()


def status_in(file: Path) -> str:
    text = file.read_text()
    return text.partition('<span class="status ')[2].partition('"')[0]


@pytest.mark.parametrize(
    "words, file",
    [
        (("RUN", "--html"), "run/report.html"),
        (("--html", "RUN"), "run/report.html"),
        (("--workdir=RUN", "--html"), "run/report.html"),
        (("RUN/checkpoints/step-12", "--html"), "run/report.html"),
        (("RUN", "--html", "one.html"), "one.html"),
        (("--html", "one.html", "RUN"), "one.html"),
        (("RUN", "--html=one.html"), "one.html"),
    ],
)
def test_the_page_is_where_the_command_says(
    words: tuple[str, ...], file: str, trained: TinyRun, tmp_path: Path
) -> None:
    shutil.copytree(trained.workdir, tmp_path / "run")
    done = report(*(word.replace("RUN", "run") for word in words), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == f"page  {file}\n"
    assert status_in(tmp_path / file) == "finished"


def test_a_folder_without_a_run_and_a_file_that_cannot_be_written(trained: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = report("empty", "--html", folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "holds no run" in done.stderr
    assert list((tmp_path / "empty").iterdir()) == []
    done = report(str(trained.workdir), "--html", "none/page.html", folder=tmp_path)
    assert done.returncode == 74 and done.stderr.count("\n") == 1 and "none/page.html" in done.stderr
    assert done.stderr.endswith("the folder none does not exist; create it: mkdir -p none\n")
    done = report(str(trained.workdir), "--html", "empty", folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "empty" in done.stderr


def test_a_run_that_trains_and_one_that_was_killed(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=100000", "train.log_every=1"))
    process = run.start()
    try:
        run.wait_for_step(process, 3)
        assert report(str(run.workdir), "--html").returncode == 0
        assert status_in(run.workdir / "report.html") == "running"
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert report(str(run.workdir), "--html").returncode == 0
    assert status_in(run.workdir / "report.html") == "interrupted"
    run.words = ("train.steps=100000", "train.log_every=1", "train.stop_at=20")
    assert run.finish() == 75, run.tail  # a resume accepts the page in its folder
    assert report(str(run.workdir), "--html").returncode == 0
    text = (run.workdir / "report.html").read_text()
    assert status_in(run.workdir / "report.html") == "stopped" and "stopped: train.stop_at" in text


@pytest.mark.parametrize("style", NAMES)
def test_a_run_in_the_style_of_another_program(style: str, tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.steps=4", "train.eval_every=2", "train.log_every=1", f"log.style={style}")
    run = TinyRun(tmp_path / "run", tiny_text, words).trained()
    done = report(str(run.workdir), "--html")
    assert (done.returncode, done.stderr) == (0, "")
    text = (run.workdir / "report.html").read_text()
    assert "<h3>Loss" in text and "<h3>Time line" in text


def test_a_run_whose_family_is_a_file(tiny_text: Path, tmp_path: Path) -> None:
    words = (f"--model.family={STATE_SPACE}", "train.steps=3", "train.log_every=1")
    run = TinyRun(tmp_path / "run", tiny_text, words).trained()
    done = report(str(run.workdir), "--html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "<td>model.d_model</td>" in (run.workdir / "report.html").read_text()
