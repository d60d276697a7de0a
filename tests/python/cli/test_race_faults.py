"""`launch.py race` with faults of the user: files of recipes, programs with wrong output, seeds that have not ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli.race.recipes import Recipe, read_recipes
from mudd_core.cli.race.result import RaceResult, terminal_table
from mudd_core.cli.race.runs import PlannedRun, RunResult, ended_result
from mudd_core.cli.race.standings import BITS, Row, measure_of, standing, value_of
from mudd_core.cli.race.step_times import timed
from mudd_core.config import load_config
from mudd_core.config.saved import to_json
from race_runs import race, ran, recipes_of, wait_for, with_times

TIMED = """
import sys
steps = int(next(one for one in sys.argv if one.startswith("--steps=")).partition("=")[2])
for _ in range(steps):
    print("waiting for a turn", flush=True)
    sys.stdin.readline()
print('LAST')
"""


def test_a_file_of_recipes_that_cannot_be_read_or_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a file of recipes, got .*No such file"):
        read_recipes(str(tmp_path / "none.txt"), [])
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9: tiny.py\n")
    with pytest.raises(UserError, match="not UTF-8"):
        read_recipes(str(tmp_path / "latin.txt"), [])
    (tmp_path / "empty.txt").write_text("# nothing\n")
    for text in (str(tmp_path / "empty.txt"), ","):
        with pytest.raises(UserError, match="expected at least one recipe"):
            read_recipes(text, [])


@pytest.mark.parametrize(
    "last",
    [
        "bye",
        "[1]",
        '{"seconds": []}',
        '{"seconds": ["x"]}',
        '{"seconds": [true]}',
        '{"seconds": [1, 0]}',
        '{"seconds": [-1]}',
        '{"seconds": [NaN]}',
    ],
)
def test_a_timed_program_with_a_wrong_last_line_is_named(tmp_path: Path, last: str) -> None:
    (tmp_path / "mine.py").write_text(TIMED.replace("LAST", last))
    recipe = Recipe("mine", "", (sys.executable, str(tmp_path / "mine.py")))
    with pytest.raises(UserError, match=r"mine: expected .* as the last line"):
        timed([recipe], tmp_path, tmp_path, 3, lambda _: None)
    assert not (tmp_path / "times.json").exists()


@pytest.mark.parametrize("text", ["not JSON", "[1]", "{}", '{"val_loss": "x"}', '{"val_loss": true}'])
def test_a_wrong_result_file_is_a_fault_of_its_run_alone(tmp_path: Path, text: str) -> None:
    run = PlannedRun(Recipe("mine", "", ("mine",)), 10, 0, tmp_path)
    run.result_file.write_text(text)
    result, fault = ended_result(run, 0)
    assert result is None and "result.json" in fault
    # The file is set aside, so that the same command runs the program again.
    assert not run.result_file.exists() and (tmp_path / "result.json.wrong").read_text() == text


def test_a_result_counts_only_if_its_program_succeeded(tmp_path: Path) -> None:
    run = PlannedRun(Recipe("mine", "", ("mine",)), 10, 0, tmp_path)
    assert "got none" in ended_result(run, 0)[1]
    for code, expected in ((0, RunResult(1.5, 2.0)), (3, None)):
        run.result_file.write_text('{"val_loss": 2.0, "val_bits_per_byte": 1.5}')
        assert ended_result(run, code) == (expected, "")
        assert run.result_file.exists() == (code == 0)


def test_the_table_shows_a_mean_of_fewer_seeds() -> None:
    base = standing(3, 30, [2.0, 2.5], [2.0, 2.5])
    part = standing(3, 20, [1.75, None], [2.0, 2.5])
    rows = tuple(Row(Recipe(n, "tiny.py", ()), 1.0, (one,)) for n, one in (("base", base), ("part", part)))
    lines = terminal_table(RaceResult(BITS, "a test", 2, rows)).splitlines()
    assert "1.7500 (1 of 2 seeds)" in next(one for one in lines if one.startswith("part"))
    assert "seeds" not in next(one for one in lines if one.startswith("base"))


SLOW = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_steps_are_timed_ends_the_timed_program(
    tiny_text: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "mine.txt").write_text(
        f"base: tiny.py\nslow: ! {sys.executable} {tmp_path / 'slow.py'} {tmp_path / 'pid'}\n"
    )
    out = tmp_path / "race"
    with_times(out, recipes_of(tiny_text, str(tmp_path / "mine.txt"))[:1], 0.5)
    command = race(tiny_text, out, str(tmp_path / "mine.txt"), "--minutes=0.001")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(tmp_path / "pid")
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "note: the step times are of a test; this is " in output
    assert output.endswith("stopped before the first run; the same command continues\n")
    assert "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list(json.loads((out / "times.json").read_text())["times"]) == ["base"]


def test_a_run_without_a_finite_loss_has_no_place(tmp_path: Path) -> None:
    run = PlannedRun(Recipe("mine", "tiny.py", ()), 10, 0, tmp_path)
    run.result_file.write_text(json.dumps({"step": 10, "val_loss": None, "val_bits_per_byte": None}))
    found, _ = ended_result(run, 0)
    assert found is not None and value_of(found, BITS) is None
    assert measure_of([found, RunResult(1.5, 2.0)]) == BITS


def test_a_budget_shorter_than_a_step_is_noted(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("base: tiny.py\n")
    with_times(tmp_path / "race", recipes_of(tiny_text, str(tmp_path / "mine.txt")), 2.0)
    done = ran(race(tiny_text, tmp_path / "race", str(tmp_path / "mine.txt"), "--minutes=0.02,0.1", "--plan"))
    note = "note: 0.02 minutes are less than a step of base, 2 s; it runs 1 step\n"
    assert done.returncode == 0 and done.stdout.count(note) == done.stdout.count("note: 0") == 1


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("train.steps=4", "train.steps: expected --minutes, which sets it, got train.steps=4"),
        ("--epochs=2", "train.epochs: expected --minutes, which sets it, got --epochs=2"),
        ("train.seed=1", "train.seed: expected --seeds, which sets it, got train.seed=1"),
    ],
)
def test_fields_that_the_race_sets_are_refused(tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^\[race\] {message}$"):
        read_recipes("tiny.py", [word])
    (tmp_path / "mine.txt").write_text(f"\none: tiny.py {word}")
    with pytest.raises(
        UserError, match=rf"^\[race\] .*mine.txt, line 2: an argument of the recipe, {message}$"
    ):
        read_recipes(str(tmp_path / "mine.txt"), [])


def test_the_steps_of_a_budget_replace_the_epochs_of_a_config(tiny_text: Path, tmp_path: Path) -> None:
    config = json.loads(to_json(load_config("tiny.py")))
    config["train"]["epochs"] = 2
    (tmp_path / "mine.json").write_text(json.dumps(config))
    (recipe,) = read_recipes(str(tmp_path / "mine.json"), [f"data.path={tiny_text}"])
    assert (recipe.loaded(7).train.steps, recipe.loaded(7).train.epochs) == (7, 0)
