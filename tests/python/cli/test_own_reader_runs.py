"""Runs whose data come from a reader in a file of the user: the copy, a changed file, mistakes, ranks."""

from __future__ import annotations

import re
from pathlib import Path

from launched import launched
from mpi_ranks import ENVIRONMENT, needs_mpi
from tiny_run import TinyRun

SHORT = ("train.steps=8", "train.save_every=2", "train.eval_every=4", "train.log_every=2")


READER = (
    "def numbers(path):\n    for n in range(400):\n        yield f'{n} and {n + 1} are {2 * n + 1}. ' * 4\n"
)


def own_run(folder: Path, text: Path, name: str, *words: str) -> TinyRun:
    return TinyRun(folder, text, (f"data.pipeline={name}", *SHORT, *words))


def test_the_copy_resumes_a_run_whose_reader_has_changed(tiny_text: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(READER)
    whole = own_run(tmp_path / "whole", tiny_text, f"{file}:numbers").finished()
    stopped = own_run(tmp_path / "run", tiny_text, f"{file}:numbers", "train.stop_at=3")
    stopped.stopped()
    assert (tmp_path / "run" / "data_pipeline.py").read_text() == READER
    file.write_text(READER.replace("400", "300"))
    changed = own_run(tmp_path / "run", tiny_text, f"{file}:numbers")
    assert changed.finish() == 2
    assert re.search(
        rf"error: \[resume\] data.pipeline: {file} has changed since .*: SHA-256 \w+... then, ", changed.tail
    )
    way_out = re.search(r"resume with the run's copy: data.pipeline=(\S+),", changed.tail)
    assert way_out
    resumed = own_run(tmp_path / "run", tiny_text, way_out[1]).finished()
    assert resumed.same_as(whole)


def test_a_saved_config_alone_runs_no_file(tiny_text: Path, tmp_path: Path) -> None:
    file, work = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(READER)
    assert own_run(work, tiny_text, f"{file}:numbers", "train.stop_at=2").finish() == 75
    file.write_text(f"open({str(tmp_path / 'was_here')!r}, 'w')\n")
    refused = launched(
        tmp_path, f"--config={work}/config.json", f"--workdir={tmp_path}/other", "train.stop_at=2"
    )
    assert refused.returncode == 2 and not (tmp_path / "was_here").exists()
    assert "a command runs only the files that its arguments name; add data.pipeline=" in refused.stderr
    stopped = launched(
        tmp_path, f"--config={work}/config.json", f"--workdir={work}", "train.stop_at=4"
    )  # the run's own copy
    assert stopped.returncode == 75 and not (tmp_path / "was_here").exists(), stopped.stderr


def test_a_mistake_is_one_line(tiny_text: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for text, said in [
        ("def numbers(path):\n    yield path\n    yield 1 / 0\n", "mine.py, line 3: ZeroDivisionError"),
        ("1 / 0\n", "mine.py, line 1: ZeroDivisionError"),
        ("n = 1\n", "expected a function 'numbers', got none"),
    ]:
        file.write_text(text)
        run = own_run(tmp_path / "run", tiny_text, f"{file}:numbers")
        assert run.finish() == 2, run.tail
        errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and said in errors[0] and "Traceback" not in run.output, run.tail


@needs_mpi
def test_two_ranks_have_the_bits_of_one(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(READER)
    whole = own_run(tmp_path / "whole", tiny_text, f"{tmp_path}/mine.py:numbers").finished()
    run = own_run(tmp_path / "run", tiny_text, f"{tmp_path}/mine.py:numbers", "--ranks=2")
    run.environment = ENVIRONMENT
    run.finished()
    assert run.summary()["final_hash"] == whole.summary()["final_hash"]
