"""`launch.py race`: recipes at equal minutes, their steps from step times, resumed runs, and the files it writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli.race.recipes import EXAMPLE, read_recipes
from mudd_core.cli.race.runs import RunResult, schedule_words
from mudd_core.cli.race.standings import BITS, LOSS, measure_of, minutes_to, standing, value_of
from mudd_core.config import load_config
from places import ROOT
from race_runs import race, ran, recipes_of, wait_for, with_times

RECIPES = "# two models\nbase: tiny.py\n\nfast: tiny.py optim.lr=1e-2  # a comment\n"
# A contestant without mudd_core: its loss is its number of steps.
PROGRAM = """
import json, sys, time
from pathlib import Path
asked = dict(one.removeprefix("--").partition("=")[::2] for one in sys.argv[1:])
data = json.loads((Path(asked["data"]) / "data.json").read_text())
if "in-turn" in asked:
    for _ in range(int(asked["steps"])):
        print("waiting for a turn", flush=True)
        sys.stdin.readline()
    print(json.dumps({"seconds": [0.5] * int(asked["steps"])}))
else:
    found = {"val_loss": float(asked["steps"]), "val_bits_per_byte": data["val_bytes"], "seconds": 1.0}
    Path(asked["out"]).write_text(json.dumps(found))
"""


def file_of(folder: Path, text: str = RECIPES) -> str:
    file = folder / "mine.txt"
    file.write_text(text)
    return str(file)


def values(out: Path) -> dict[str, list[tuple[int, list[float | None]]]]:
    found = json.loads((out / "race.json").read_text())
    return {
        one["name"]: [(each["steps"], each["results"]) for each in one["budgets"]] for one in found["recipes"]
    }


def test_a_race_times_trains_and_resumes(tiny_text: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    first = ran(race(tiny_text, tmp_path / "a", file, "--minutes=0.001"))
    assert first.returncode == 0, first.stderr
    assert "timing the steps of base" in first.stdout and "timing the steps of fast" in first.stdout
    assert set(json.loads((tmp_path / "a" / "times.json").read_text())["times"]) == {"base", "fast"}
    page = (tmp_path / "a" / "race.html").read_text()
    assert "fast" in page and "gain over the first" in page
    again = ran(race(tiny_text, tmp_path / "a", file, "--minutes=0.001"))
    assert again.returncode == 0 and ", 0 left" in again.stdout and "timing" not in again.stdout


def test_a_stopped_race_ends_with_the_results_of_an_unbroken_one(tiny_text: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    for name in ("whole", "stopped"):
        with_times(tmp_path / name, recipes_of(tiny_text, file), 0.02, 0.04)
    words = ("--minutes=0.01,0.1",)
    assert ran(race(tiny_text, tmp_path / "whole", file, *words)).returncode == 0
    command = race(tiny_text, tmp_path / "stopped", file, *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("run 3 of 4"):
                break
        wait_for(tmp_path / "stopped" / "runs" / "base" / "300-steps-seed0" / "metrics.jsonl")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 75, rest
    assert "the same command resumes" in rest
    assert [results for _, results in values(tmp_path / "stopped")["base"]][1] == [None]
    done = ran(race(tiny_text, tmp_path / "stopped", file, *words))
    assert done.returncode == 0, done.stderr
    assert values(tmp_path / "stopped") == values(tmp_path / "whole")
    assert [steps for steps, _ in values(tmp_path / "whole")["base"]] == [30, 300]
    run = tmp_path / "whole" / "runs" / "base" / "30-steps-seed0"
    assert (run / "metrics.jsonl").exists() and not (run / "checkpoints").exists()


def test_two_runs_at_once_have_the_same_results(tiny_text: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    for name in ("one", "two"):
        with_times(tmp_path / name, recipes_of(tiny_text, file), 0.01, 0.02)
    assert ran(race(tiny_text, tmp_path / "one", file, "--minutes=0.01")).returncode == 0
    both = ran(race(tiny_text, tmp_path / "two", file, "--minutes=0.01", "--jobs=2"))
    if "expected at most 1" in both.stderr:
        pytest.skip("one core")
    assert both.returncode == 0, both.stderr
    assert values(tmp_path / "one") == values(tmp_path / "two")


def test_a_program_takes_part(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    file = file_of(tmp_path, f"base: tiny.py\nother: ! {sys.executable} {tmp_path / 'mine.py'}\n")
    with_times(tmp_path / "out", recipes_of(tiny_text, file)[:1], 0.01)
    done = ran(race(tiny_text, tmp_path / "out", file, "--minutes=0.01"))
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "out" / "data" / "data.json").read_text())
    ids = np.fromfile(tmp_path / "out" / "data" / "val.bin", np.uint16)
    assert data["val_targets"] == (len(ids) - 1) // 32 * 32 and ids.max() < data["vocab_size"]
    # One byte is one token, but for the end of each document.
    assert data["val_targets"] * 0.9 < data["val_bytes"] <= data["val_targets"]
    assert values(tmp_path / "out")["other"][0][1] == [data["val_bytes"]]


def test_a_failing_run_is_named_and_the_others_go_on(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys\nsys.exit('broken here')\n")
    file = file_of(tmp_path, f"other: ! {sys.executable} {tmp_path / 'mine.py'}\nbase: tiny.py\n")
    with_times(tmp_path / "out", recipes_of(tiny_text, file), 0.01, 0.02)
    done = ran(race(tiny_text, tmp_path / "out", file, "--minutes=0.01"))
    assert done.returncode == 1 and "broken here" in done.stdout
    assert values(tmp_path / "out")["other"][0][1] == [None]
    assert values(tmp_path / "out")["base"][0][1][0] is not None


def test_a_changed_recipe_is_refused_and_a_new_one_is_timed(tiny_text: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    with_times(tmp_path / "out", recipes_of(tiny_text, file), 0.01, 0.02)
    changed = file_of(tmp_path, RECIPES.replace("1e-2", "2e-2"))
    refused = ran(race(tiny_text, tmp_path / "out", changed, "--plan"))
    assert refused.returncode == 2 and "give it a new name" in refused.stderr
    more = file_of(tmp_path, RECIPES + "third: tiny.py optim.name=muon\n")
    planned = ran(race(tiny_text, tmp_path / "out", more, "--minutes=0.01", "--plan"))
    assert planned.returncode == 0, planned.stderr
    assert "timing the steps of third" in planned.stdout and "3 runs, 3 left" in planned.stdout
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base tiny.py\n", "line 1: expected NAME: CONFIG ARGUMENTS"),
        ("base: tiny.py\nbase: small.py\n", "got base twice"),
        ("base: tiny.py optim.lrr=1\n", "line 1: "),
        ("../x: tiny.py\n", "line 1: expected NAME"),
        ("base: tiny.py 'open\n", "line 1: No closing quotation"),
        ("a: ! python3 x.py\n", "expected a config, whose data the programs read"),
        ("a: !\n", "line 1: expected NAME"),
    ],
)
def test_mistakes_in_a_file_of_recipes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=r"\[race\]") as error:
        read_recipes(file_of(tmp_path, text), [])
    assert message in str(error.value)


def test_the_recipes_of_the_message_and_of_the_page_are_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/running/look.md").read_text()
    shown = page.partition("has a name for each line:")[2].split("```")[1].removeprefix("text\n")
    assert EXAMPLE in shown and len(read_recipes(file_of(tmp_path, shown), [])) == 3


def test_schedules_fit_to_another_number_of_steps() -> None:
    config = load_config("tiny.py", ["train.steps=100", "optim.warmup_steps=20"])
    assert schedule_words(config, 400) == ["optim.warmup_steps=20"]
    assert schedule_words(config, 80) == ["optim.warmup_steps=10"]
    ends = ["train.steps=100", "optim.warmup_steps=0", "optim.schedule=wsd", "optim.decay_steps=30"]
    config = load_config("tiny.py", [*ends, "optim.schedule_steps=50"])
    assert schedule_words(config, 200) == ["optim.schedule_steps=100", "optim.decay_steps=60"]
    with pytest.raises(UserError, match=r"optim\.schedule=phases"):
        schedule_words(
            load_config("tiny.py", ["optim.schedule=phases", "optim.phases=linear:10:0:1,constant:rest:1"]),
            10,
        )


def test_gains_are_paired_and_minutes_are_interpolated() -> None:
    first = [standing(3, 30, [2.0, 2.2], [2.0, 2.2]), standing(12, 120, [1.6, 1.8], [1.6, 1.8])]
    other = [standing(3, 20, [1.9, 2.1], [2.0, 2.2]), standing(12, 80, [1.5, None], [1.6, 1.8])]
    # Equal gains, but for rounding.
    assert other[0].gain == pytest.approx(0.1) and other[0].gain_interval95 == pytest.approx(0.0, abs=1e-9)
    assert other[1].gain == pytest.approx(0.1) and other[1].gain_interval95 is None
    assert first[0].mean == pytest.approx(2.1) and first[1].mean == pytest.approx(1.7)
    # From 2.0 at 3 minutes to 1.5 at 12: 1.75 is half of the way in the logarithm, 6 minutes.
    assert minutes_to(1.75, other) == pytest.approx(6.0)
    assert minutes_to(2.2, other) is None and minutes_to(1.4, other) is None
    assert minutes_to(2.0, other) == pytest.approx(3.0) and minutes_to(1.5, other) == pytest.approx(12.0)


def test_the_measure_is_the_loss_if_a_run_has_no_bytes() -> None:
    with_bytes, without = RunResult(1.5, 2.5), RunResult(None, 3.0)
    assert measure_of([with_bytes, None]) == BITS and measure_of([with_bytes, without]) == LOSS
    assert value_of(with_bytes, BITS) == 1.5 and value_of(with_bytes, LOSS) == 2.5
    assert value_of(RunResult(1.0, float("nan")), LOSS) is None and value_of(None, BITS) is None
