"""The last lines of a command: paths, next commands and the hash, or an error and its exit code."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fake_engine import FakeEngine
from fake_runs import make
from mudd_core import cli
from mudd_core.base.errors import DivergedError, FormatError, SaveError, UserError
from mudd_core.base.surroundings import environment_text, typed_program
from mudd_core.cli import argv, commands, ending
from mudd_core.cli.requested import request_of
from mudd_core.config import Config, SampleConfig
from mudd_core.run.records.events import Summary
from mudd_core.run.report.sample import write_text
from mudd_core.run.store.run_folder import RunFolder


def test_the_ending_is_the_result_and_two_commands(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-300").mkdir(parents=True)
    request = request_of(argv.parse(["--config=tiny.py", "train.steps=300"]))
    summary = Summary("tiny", 300, 300, 307200, 2.5, 2.4, 1.61, 0, 92.0, "ab12")
    lines = ending.ending(summary, RunFolder(tmp_path), request, "The end").splitlines()
    start = " ".join(typed_program())
    assert lines == [
        "done: 300 steps, 307,200 tokens in 1m32s; validation loss 2.4000, 1.6100 bits per byte",
        f"  {start} sample {tmp_path} --prompt 'The end'",
        f"  {start} report {tmp_path} --html",
    ]
    details = ending.ending_details(summary, RunFolder(tmp_path)).splitlines()
    assert details[0] == f"checkpoint  {tmp_path}/checkpoints/step-300" and details[-1] == "final hash  ab12"


def test_the_commands_name_the_run_as_the_user_typed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one" / "checkpoints" / "step-3").mkdir(parents=True)
    summary = Summary("tiny", 3, 3, 3, 2.5, 2.4, 1.61, 0, 92.0, "ab12")
    typed = request_of(argv.parse(["--config=tiny.py", "--workdir=runs/one"]))
    folder = typed.folder.absolute()
    start = " ".join(typed_program())
    assert ending.ending(summary, folder, typed, "a").splitlines()[1:] == [
        f"  {start} sample runs/one --prompt a",
        f"  {start} report runs/one --html",
    ]
    other = RunFolder(tmp_path / "other")
    assert ending.ending(summary, other, typed).splitlines()[-1] == f"  {start} report {other} --html"


def test_the_ending_of_a_run_on_conversations_names_chat(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-3").mkdir(parents=True)
    request = request_of(argv.parse(["--config=tiny.py"]))
    summary = Summary("tiny", 3, 3, 3, 2.5, 2.4, 1.61, 0, 92.0, "ab12")
    lines = ending.ending(summary, RunFolder(tmp_path), request, None, chats=True).splitlines()
    assert lines[1] == f"  {' '.join(typed_program())} chat {tmp_path}" and len(lines) == 3


@pytest.mark.parametrize("name", ["--odd", "a=b", "a b"])
def test_an_odd_folder_is_named_so_that_the_command_reads_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    Path(name, "config.json").write_text("{}")
    invocation = argv.parse(["report", *ending.run_argument(RunFolder(Path(name)))])
    assert str(request_of(invocation).folder) == name


def test_a_sample_that_fails_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(
        engine=SimpleNamespace(executor=SimpleNamespace(release=lambda: None)),
        model=SimpleNamespace(config=SimpleNamespace(max_seq_len=1)),
        tokenizer=SimpleNamespace(eos_id=0, encode=lambda text, **_: []),
    )
    ending.show_sample(trainer, Config())
    assert "warning: no sample: [sample] prompt: expected at most 0 tokens" in capsys.readouterr().out


def test_a_prompt_that_is_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="UTF-8"):
        write_text(None, None, "\udcff", SampleConfig(), print)


def test_the_start_line_tells_the_precision() -> None:
    assert ", bf16" in environment_text("bf16")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), 2),
        (FormatError("f", 3, "r"), 65),
        (SaveError("x"), 74),
        (DivergedError("x"), 76),
        (MemoryError("x"), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (ZeroDivisionError("x"), 70),
        (ValueError("x"), 70),
    ],
)
def test_every_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "run", fail)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert cli.main(["--config=tiny.py"]) == code
    assert ("Traceback" in capfd.readouterr().err) == (code == 70)


def test_report_tells_of_numbers_that_are_not_finite_and_of_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(w=np.full(5, np.nan, np.float32))
    with make(tmp_path, engine, "train.save=false") as trainer:  # weights that are not finite are never saved
        trainer.fit()

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert summary["loss"] is None and summary["val_loss"] is None
    assert cli.main(["report", f"--workdir={tmp_path}"]) == 0
    # Counted: both losses of the result, loss and bits per byte of three validations, and loss and gradient norm of
    # the last five entries.
    assert capsys.readouterr().out.count("not finite") == 2 + 2 * 3 + 2 * 5
    log = tmp_path / "metrics.jsonl"
    log.write_text(log.read_text().replace("{", "", 1))
    assert cli.main(["report", f"--workdir={tmp_path}"]) == 65
    told = capsys.readouterr().err
    assert "line 1 is damaged" in told and "Traceback" not in told


def test_report_shows_the_saved_step_of_a_run_stopped_between_two_log_entries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line() -> str:
        assert cli.main(["report", f"--workdir={tmp_path}"]) == 0
        return capsys.readouterr().out.split("\n", 1)[0]

    with make(tmp_path, FakeEngine()) as trainer:  # train.log_every=2
        trainer.save()
        assert cli.main(["report", f"--workdir={tmp_path}"]) == 0
        text = capsys.readouterr().out
        assert (
            "not trained yet, of 20 steps" in text and "checkpoints: step 0\n" in text and "bits" not in text
        )
        loss = trainer.fit(1, progress=False).loss
        assert line().endswith(f": step 1 of 20, loss {loss:.4f}, no update is logged")
        loss = trainer.fit(4, progress=False).loss
        assert f": step 5 of 20, loss {loss:.4f}, " in line()
