"""Programs of the bench step one at a time, in order; a failing program invalidates only its round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import ROOT

BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH)]

from mudd_core.cli.race.turns import Program, take_turns  # noqa: E402

STEPS = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from turns import turns
log, name, fails_at = sys.argv[2:5]
for step in turns(3, len(sys.argv) < 6):
    with open(log, "a") as f:
        f.write(f"{name}{step} ")
        f.flush()
        time.sleep(0.02)  # a neighbour that did not wait would write now
        f.write("done ")
    if step == int(fails_at):
        raise SystemExit("broken")
print("a line beside the report")
print(json.dumps({"name": name}))
"""


def argv(log: Path, name: str, fails_at: int = -1) -> list[str]:
    return [sys.executable, "-c", STEPS, str(BENCH), str(log), name, str(fails_at)]


def start(log: Path, name: str, fails_at: int = -1) -> Program:
    return Program(argv(log, name, fails_at), dict(os.environ))


def test_programs_step_one_at_a_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reports = take_turns([start(log, "a"), start(log, "b")], 3)
    assert reports == [{"name": "a"}, {"name": "b"}]
    expected = [word for step in range(3) for word in (f"a{step}", "done", f"b{step}", "done")]
    assert log.read_text().split() == expected


def test_a_program_that_fails_has_no_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert None in take_turns([start(log, "a"), start(log, "b", fails_at=1)], 3)
    assert take_turns([start(log, "a"), start(log, "b", fails_at=2)], 3) == [{"name": "a"}, None]


def test_without_turns_the_steps_follow_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run([*argv(log, "a"), "alone"], check=True, stdout=subprocess.DEVNULL)
    assert log.read_text().split() == ["a0", "done", "a1", "done", "a2", "done"]


def test_nobody_to_give_turns_ends_the_program(tmp_path: Path) -> None:
    done = subprocess.run(
        argv(tmp_path / "log", "a"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "expected a line for each turn" in done.stderr
