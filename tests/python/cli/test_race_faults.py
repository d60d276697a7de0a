"""`launch.py race` with faults of the user: files of recipes, programs with wrong output, seeds that have not ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli.race.recipes import Recipe, read_recipes
from mudd_core.cli.race.result import RaceResult, terminal_table
from mudd_core.cli.race.runs import PlannedRun, RunResult, ended_result
from mudd_core.cli.race.standings import BITS, Row, standing
from mudd_core.cli.race.step_times import timed

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
