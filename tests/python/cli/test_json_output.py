"""--json of plan, report, compare and doctor: one object whose values equal mc.plan, the logs and mc.compare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from launched import launched
from mudd_core.base.show.json_text import json_text
from mudd_core.cli import main
from places import ROOT
from tiny_run import TinyRun

COMMON = ("train.steps=6", "train.eval_every=3", "train.save_every=3", "log.batches=true")


@pytest.fixture(scope="module")
def runs(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> list[TinyRun]:
    """Return two runs of different seeds."""
    folder = tmp_path_factory.mktemp("json")
    return [
        TinyRun(folder / f"run{seed}", tiny_text, (*COMMON, f"train.seed={seed}")).trained()
        for seed in (0, 1)
    ]


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """Return the object that a command prints."""
    capsys.readouterr()
    assert main([*words]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def documented(command: str) -> set[str]:
    """Return the keys that docs/file-formats.md lists for a command."""
    page = (ROOT / "docs" / "file-formats.md").read_text()
    return set(re.findall(r"`(\w+)`", page.partition(f"| `{command}` |")[2].splitlines()[0]))


def test_a_plan_has_the_values_of_mc_plan(runs: list[TinyRun], capsys: pytest.CaptureFixture[str]) -> None:
    words = runs[0].command()[2:]
    found = printed(capsys, *words, "--plan", "--json")
    expected = mc.plan(runs[0].workdir)
    assert found["schema"] == "mudd_core.plan/1" and found["refused"] is None
    for name in ("fits", "parameters", "flops_per_token", "flops_per_step", "steps", "checkpoint_bytes"):
        assert found[name] == getattr(expected, name)
    assert set(found["memory"]) == set(expected.memory)
    assert found.keys() - {"schema"} == documented("plan")


def test_a_report_has_the_entries_of_the_logs(runs: list[TinyRun]) -> None:
    done = launched(runs[0].workdir.parent, "report", "run0", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = [json.loads(line) for line in (runs[0].workdir / "metrics.jsonl").read_text().splitlines()]
    assert found["schema"] == "mudd_core.report/1"
    assert (
        found["validations"] == [row for row in rows if "val_loss" in row] and len(found["validations"]) > 1
    )
    assert found["last_update"] == [row for row in rows if "val_loss" not in row][-1]
    assert found["step"] == found["steps"] == 6 and found["best_step"] in found["checkpoints"]
    assert found["config"] == json.loads((runs[0].workdir / "config.json").read_text())
    assert found.keys() - {"schema"} <= documented("report")


def test_a_comparison_names_fields_and_the_first_step(
    runs: list[TinyRun], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(run.workdir) for run in runs]
    found = printed(capsys, "compare", *paths, "--json")
    assert found["schema"] == "mudd_core.compare/1"
    assert [run["path"] for run in found["runs"]] == paths
    assert [run["final_hash"] for run in found["runs"]] == [run.summary()["final_hash"] for run in runs]
    [other] = found["differences"]
    assert {"field": "train.seed", "base": 0, "other": 1} in other["fields"]
    assert {"B": other["first_step"]} == dict(mc.compare(*paths).first_differences)
    assert other["common_steps"] > 0 and other["values"][0]["base"] != other["values"][0]["other"]
    inner = {key for run in (*found["runs"], other) for key in run}
    assert inner <= documented("compare")


def test_the_doctor_lists_its_findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = printed(capsys, "doctor", f"--workdir={tmp_path}", "--json")
    assert found["schema"] == "mudd_core.doctor/1" and found["works"] is True
    assert {one["subject"] for one in found["findings"]} >= {"cpu", "memory", "packages"}
    assert {one["level"] for one in found["findings"]} <= {"ok", "warning"}
    assert {key for one in found["findings"] for key in one} <= documented("doctor")


def test_json_without_a_plan_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=tiny.py", "--json"]) == 2
    assert "--json: expected --plan with it, got none; add --plan" in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_null() -> None:
    found = json.loads(json_text("plan", {"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": 0.0}}))
    assert found == {"schema": "mudd_core.plan/1", "a": None, "b": [1.5, None], "c": {"d": 0.0}}
