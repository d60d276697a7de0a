"""mc.teach: the command's file from Python, its result, progress, and errors that name its arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.base.show import waiting
from mudd_core.cli import main
from mudd_core.data.cache.teacher_file import TeacherFile
from mudd_core.tools.teach import reading
from mudd_core.tools.teach.command import parser
from tune_folders import write_given


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a base, 20 conversations and the command's teacher file of them."""
    folder = write_given(tmp_path_factory.mktemp("teach-python"), 20, unused_ids=3)
    asked = [f"--base={folder / 'base'}", f"--data={folder / 'chat.jsonl'}", f"--to={folder / 'command.h5'}"]
    assert main(["teach", *asked, "--top=8", "train.seq_len=64"]) == 0
    return folder


def taught(given: Path, to: Path, **changed: Any) -> Any:
    """Call mc.teach with the arguments of the command's file, some of them changed."""
    arguments = {
        "base": given / "base",
        "data": given / "chat.jsonl",
        "to": to,
        "top": 8,
        "train_seq_len": 64,
    }
    return mc.teach(**{**arguments, **changed})


def test_the_function_writes_the_file_of_the_command(
    given: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    teacher = taught(given, tmp_path / "python.h5", progress=False)
    assert capfd.readouterr() == ("", "")
    assert teacher.file.read_bytes() == (given / "command.h5").read_bytes()
    assert (teacher.targets, teacher.top) == (TeacherFile(teacher.file, "[test]").targets, 8)
    assert 0 < teacher.probability < 1 and str(teacher.file) in repr(teacher)
    other = taught(given, tmp_path / "run.h5", base=mc.load_run(given / "base"), progress=False)
    assert other.file.read_bytes() == teacher.file.read_bytes()


def test_the_defaults_are_those_of_the_command(given: Path) -> None:
    options, _ = parser().read(["--base=a", "--data=b", "--to=c"])
    assert inspect.signature(mc.teach).parameters["top"].default == options.top


def test_it_prints_lines_and_the_progress(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("FIRST_SECONDS", "NEXT_SECONDS"):
        monkeypatch.setattr(waiting, name, 0.0)
    teacher = taught(given, tmp_path / "shown.h5")
    shown = capfd.readouterr()
    assert shown.out.splitlines()[-1] == teacher.text
    assert "1 of 20 examples" in shown.err and "20 of 20 examples" in shown.err


@pytest.mark.parametrize(
    "changed, kind, text",
    [
        ({"top": 0}, UserError, r"\[teach\] top: expected a whole number of at least 1, got .0"),
        ({"top": 100_000}, UserError, r"\[teach\] top: expected less than the vocabulary"),
        ({"top": 8.0}, TypeError, r"\[teach\] top: expected a whole number from 1, got 8.0"),
        ({"progress": 1}, TypeError, r"\[teach\] progress: expected True or False, got 1"),
        ({"base": "no/folder"}, UserError, r"\[teach\] base: expected .* got 'no/folder'"),
        ({"data": "no.jsonl"}, UserError, r"\[teach\] data: .*no.jsonl"),
        ({"data": ""}, TypeError, r"\[teach\] data: expected a string or a path"),
        ({"train_seqlen": 64}, UserError, r"\[teach\] unknown keyword 'train_seqlen'; did you mean"),
        ({"model_d_ff": 64}, UserError, r"\[teach\] model_d_ff: the base decides the model"),
        ({"top_k": 8}, TypeError, r"there is no argument 'top_k'; type mc.teach\(base, data, to, top=64\)"),
        ({"data_loss_on": "none"}, UserError, r"data.loss_on: expected one of assistant"),
    ],
)
def test_errors_name_the_arguments(
    given: Path, tmp_path: Path, changed: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as found:
        taught(given, tmp_path / "new.h5", **changed)
    assert "--" not in str(found.value) and not any(tmp_path.iterdir())


def test_an_existing_file_stays_and_a_stopped_call_leaves_none(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (given / "command.h5").read_bytes()
    with pytest.raises(UserError, match=r"\[teach\] to: expected a new file, got .*command.h5, which exists"):
        taught(given, given / "command.h5")
    assert (given / "command.h5").read_bytes() == content

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "likeliest", stopped)
    with pytest.raises(KeyboardInterrupt):
        taught(given, tmp_path / "new.h5")
    assert not any(tmp_path.iterdir())


def test_the_command_refuses_fields_of_the_model(given: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = [f"--base={given / 'base'}", f"--data={given / 'chat.jsonl'}", f"--to={given / 'new.h5'}"]
    assert main(["teach", *asked, "model.d_ff=64"]) == 2
    assert "[teach] model: the base decides the model" in capfd.readouterr().err
