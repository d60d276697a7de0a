"""The commonest mistakes on the command line: one line each that says what to type, as kept in a file."""

from __future__ import annotations

import shlex
import subprocess
import sys

from mudd_core.config.keys.foreign import NOTES, SETTINGS
from places import ROOT

KEPT = (ROOT / "tests" / "data" / "cli" / "mistakes.txt").read_text(encoding="utf-8")
ENTRIES = [entry.splitlines() for entry in KEPT.strip().split("\n\n")]


def test_every_mistake_has_its_line() -> None:
    command = [sys.executable, str(ROOT / "tests" / "command_mistakes.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    # Else: python tests/command_mistakes.py --write, and read them.
    assert done.stdout.splitlines() == KEPT.splitlines()


def test_each_answer_is_one_line_and_its_command_is_another_one() -> None:
    assert len(ENTRIES) >= 40 and len({entry[0] for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert len(entry) == 2 and entry[0].startswith("$ ") and entry[1].startswith("error: ["), entry
        _, typed, command = entry[1].partition("; type: python3 launch.py ")
        assert not typed or shlex.split(command.partition(";")[0]) != shlex.split(entry[0][2:]), entry


def test_a_note_is_of_a_known_setting() -> None:
    assert NOTES.keys() <= SETTINGS.keys()
    assert not {name for name in ("device", "compile", "do_train") if SETTINGS[name] or name not in NOTES}
