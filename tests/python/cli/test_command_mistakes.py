"""The most common mistakes on the command line: the answer is one line with the right command, as stored in a file."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core import cli
from mudd_core.cli.argv import parse
from mudd_core.cli.main_help import group_lines
from mudd_core.cli.requested import request_of
from mudd_core.config.foreign import NOTES, SETTINGS
from places import ROOT

KEPT = (ROOT / "tests" / "data" / "cli" / "mistakes.txt").read_text(encoding="utf-8")
ENTRIES = [entry.splitlines() for entry in KEPT.strip().split("\n\n")]
_TYPE = "; type: python3 launch.py "


def proposed() -> list[list[str]]:
    """Return the arguments of the commands that the answers propose."""
    lines = [entry[1].partition(_TYPE)[2].partition("; configs of")[0] for entry in ENTRIES]
    return [shlex.split(line) for line in dict.fromkeys(lines) if line]


def test_every_mistake_has_its_line() -> None:
    command = [sys.executable, str(ROOT / "tests" / "command_mistakes.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    # If this fails: run python tests/command_mistakes.py --write, and read the answers.
    assert done.stdout.splitlines() == KEPT.splitlines()


def test_each_answer_is_one_line_and_its_command_is_another_one() -> None:
    """Check the answers; an unknown command also has the lines with the commands of each group."""
    assert len(ENTRIES) >= 90 and len({entry[0] for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert (
            entry[2:] in ([], group_lines()) and entry[0].startswith("$ ") and entry[1].startswith("error: [")
        ), entry
        _, typed, command = entry[1].partition(_TYPE)
        assert not typed or shlex.split(command.partition("; configs of")[0]) != shlex.split(entry[0][2:]), (
            entry
        )


@pytest.mark.parametrize("words", proposed(), ids=" ".join)
def test_a_proposed_command_is_taken(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that a proposed training has a valid config, and that other proposed commands have known options."""
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("notes\n")
    if (tool := parse(words).tool) is not None:
        assert cli.main([*words, "--help"]) == 0
        assert f"launch.py {tool}" in capsys.readouterr().out
        return
    trains = words[0].startswith("--") or words[0] == "train"
    request = request_of(parse([*words, *(["--plan"] if trains else [])]))
    assert (request.config is not None) == (trains or request.command == "data")
    assert request.command == ("train" if trains else words[0])


def test_proposed_trainings_are_planned(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes\n")
    some = [words for words in proposed() if words[0] == "--config=tiny.py" and len(words) > 3]
    assert len(some) >= 2
    for words in some[:2]:
        command = [sys.executable, str(ROOT / "launch.py"), *words, "--plan"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_a_note_is_of_a_known_setting() -> None:
    assert NOTES.keys() <= SETTINGS.keys()
    assert not {name for name in ("device", "compile", "do_train") if SETTINGS[name] or name not in NOTES}
