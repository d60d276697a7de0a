"""The race of bench/race: steps from budgets, keys of runs, resumption, intervals, and the prose corpus."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from mudd_core.cli.sweep.processes import STOPPED
from mudd_core.config import load_config
from places import ROOT

sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "race")]

import entries  # noqa: E402
import paired  # noqa: E402
import prose_corpus  # noqa: E402
import step_times  # noqa: E402
from contestants import BASE, CONTESTANTS, Contestant, chosen  # noqa: E402
from entries import entry_of, finished, steps_of  # noqa: E402
from step_times import StepTime  # noqa: E402

import race  # noqa: E402

TIMES = {
    BASE: StepTime(0.1, 0.1),
    "rows": StepTime(0.3, 0.15),
    "batch_8": StepTime(0.2, 0.2),
}


def one(name: str) -> Contestant:
    return next(found for found in CONTESTANTS if found.name == name)


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda found: found.name)
def test_every_model_of_the_race_has_a_valid_config(
    contestant: Contestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    model = load_config(contestant.config, contestant.arguments).model
    assert (model.d_model, model.n_layer, model.n_head) == (192, 6, 3)
    if contestant.table is not None:
        assert contestant.table[:2] == (vars(model)["rows"], vars(model)["row_width"])
        small = load_config(contestant.config, contestant.small_table()).model
        assert vars(small)["rows"] < contestant.table[0]


def test_steps_follow_from_the_charged_the_dense_and_the_base_time() -> None:
    counts = [steps_of(one("rows"), TIMES, 3, kind) for kind in entries.KINDS]
    assert counts == [1200, 600, 1800]
    assert steps_of(one("batch_8"), TIMES, 3, "equal") == 900  # the tokens of 1,800 steps
    with pytest.raises(SystemExit, match=r"\[race\] muon has no step time; type: "):
        steps_of(one("muon"), TIMES, 3, "charged")


def test_only_ratios_to_the_base_are_measured(tmp_path: Path) -> None:
    for slower in (1.0, 2.0):
        measured = {
            BASE: StepTime(slower * 0.2, slower * 0.2),
            "rows": StepTime(slower * 0.4, slower * 0.3),
        }
        step_times.write(tmp_path / "times.json", measured)
        found = step_times.read(tmp_path / "times.json")
        assert found["rows"] == StepTime(pytest.approx(0.31), pytest.approx(0.2325))
        assert steps_of(one(BASE), found, 3, "charged") == 1161
    with pytest.raises(SystemExit, match=r"absent.json is missing; type: python bench/race/race.py measure"):
        step_times.read(tmp_path / "absent.json")


def test_the_key_of_a_run_is_the_same_in_every_process_and_changes_with_the_model() -> None:
    code = "import sys; sys.path[:0] = sys.argv[1:]; from entries import *; from contestants import *\n"
    code += "print([digest_of(one) for one in CONTESTANTS])"
    folders = [str(ROOT / "bench"), str(ROOT / "bench/race")]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, *folders],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert outputs == {f"{[entries.digest_of(found) for found in CONTESTANTS]}\n"}
    assert len({entries.digest_of(found) for found in CONTESTANTS}) == len(CONTESTANTS)


class Children:
    """Processes that end at once, with the bits per byte of the contestant; the third one is asked to stop."""

    seen: ClassVar[list[str]] = []

    def __init__(self, jobs: int) -> None:
        assert jobs == 1

    def run(
        self,
        lines: list[list[str]],
        starts: Callable[[int], None],
        ended: Callable[[int, int, str], None],
    ) -> bool:
        for number, line in enumerate(lines):
            work = Path(line[-1].removeprefix("--workdir="))
            self.seen.append(work.name)
            if len(self.seen) == 3:
                ended(number, STOPPED, "")
                return False
            work.mkdir(parents=True)
            bits, steps = 2.0 - 0.1 * ("-rows-" in work.name), int(work.name.split("-")[2])
            found = {"step": steps, "val_bits_per_byte": bits, "seconds": 1.0, "final_hash": "hash"}
            (work / "summary.json").write_text(json.dumps(found))
            ended(number, 0, "")
        return True


def test_a_second_call_runs_only_what_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Children.seen
    monkeypatch.setattr(race, "Processes", Children)
    monkeypatch.setattr(race, "read", lambda path: TIMES)
    options = ["--folder", str(tmp_path), "--only=rows", "--corpora=code", "--seeds=2", "--minutes=3"]
    assert race.run(race.parse(["run", *options])) == STOPPED
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"entry": {"corpus"')  # a process that was killed while it wrote
    assert len(finished(tmp_path / "runs.jsonl")) == 2
    before = len(seen)
    assert race.run(race.parse(["run", *options])) == 0
    assert race.run(race.parse(["run", *options])) == 0
    assert seen[before - 1] == seen[before] and len(set(seen)) == len(seen) - 1 == 6
    assert not list((tmp_path / "work").iterdir())
    text = race.table(race.parse(["table", *options]))
    assert "| rows | 300.0 | 150.0 | 1200 | 1.9000 | +0.1000 [+0.1000, +0.1000] |" in text
    assert "0 runs are left" in capsys.readouterr().out


def test_intervals_are_those_of_student() -> None:
    mean, half = paired.interval([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2) and half == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert paired.gain_text([0.25]) == "+0.2500" and paired.gain_text([]) == "-"


def test_an_unknown_model_and_a_wrong_budget_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"\[race\] --only: expected names of base, .*, got 'row'"):
        chosen("row")
    for wrong in ("--minutes=0", "--kinds=fast", "--corpora=news"):
        with pytest.raises(SystemExit):
            race.parse(["run", wrong])
        assert "expected" in capsys.readouterr().err


def test_the_command_of_a_run_has_its_own_schedule(tmp_path: Path) -> None:
    a = race.parse(["run", "--folder", str(tmp_path)])
    entry = entry_of(one("rows"), TIMES, 3, "charged", "prose", 2)
    argv = race.command(a, one("rows"), entry)
    assert {"train.steps=1200", "train.seed=2", "optim.warmup_steps=150"} <= set(argv)
    assert f"data.path={tmp_path / 'data'}/prose.txt" in argv
    assert json.loads(json.dumps(entry.folder)) == f"prose-rows-1200-2-{entry.digest}"


def test_pieces_of_the_dictionary_come_from_all_over_the_alphabet() -> None:
    text = "\n\n".join(f"entry {number}" for number in range(20_000))
    found = prose_corpus.pieces(text, 60_000).split("\n\n")
    numbers = [int(entry.split()[1]) for entry in found]
    assert numbers == sorted(set(numbers)) and numbers[-1] > 19_000
    assert 40_000 < len("\n\n".join(found)) < 90_000
