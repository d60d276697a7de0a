"""log.txt contains the printed lines; of rewritten lines it has the last version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mudd_core.base.errors import SaveError
from mudd_core.cli.standard_streams import copied_output
from mudd_core.run.store.run_folder import RunFolder
from tiny_run import TinyRun


def test_all_that_is_printed_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    for _ in range(2):
        with copied_output(RunFolder(tmp_path)):
            print("one")
            sys.stdout.write("\r\x1b[Kstep 1")
            sys.stdout.write("\r\x1b[Kstep 2\n")
            sys.stdout.write("\r\x1b[Kstep 3")
            sys.stdout.write("\r\x1b[Kénd")
    assert sys.stdout is before
    assert (tmp_path / "log.txt").read_text() == "one\nstep 2\nénd\n" * 2
    assert capsys.readouterr().out.startswith("one\n\r\x1b[Kstep 1\r\x1b[Kstep 2\n")


def test_a_place_that_cannot_be_written_is_74(tmp_path: Path) -> None:
    (tmp_path / "log.txt").mkdir()
    with pytest.raises(SaveError, match=r"log\.txt"), copied_output(RunFolder(tmp_path)):
        pass


def test_a_disk_that_refuses_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copied_output(RunFolder(tmp_path)):
        sys.stdout._file.close()  # type: ignore[attr-defined]
        sys.stdout._file = open("/dev/full", "wb", buffering=0)  # type: ignore[attr-defined]  # noqa: SIM115
        print("one")
        print("two")
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n"
    assert err.count("the run continues") == 1


def test_a_run_leaves_its_output_and_a_resume_adds_to_it(tmp_path: Path, tiny_text: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=4", "train.stop_at=2"))
    run.stopped()
    first = run.output
    run.words = ("train.steps=4",)
    run.finished()
    log = (run.workdir / "log.txt").read_text()
    for line in (first + run.output).splitlines():
        on_stderr = line.startswith(("warning:", "data:"))
        assert on_stderr or line in log.splitlines(), line
    assert log.count("work directory") == 2


def test_a_log_txt_that_is_a_folder_is_refused_at_the_start(tmp_path: Path, tiny_text: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text)
    (run.workdir / "log.txt").mkdir(parents=True)
    assert run.finish() == 2
    assert "log.txt: expected a regular file, got a folder" in run.output
