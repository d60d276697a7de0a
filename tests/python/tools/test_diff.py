"""`diff A B` of trained runs with planted causes: settings, the first step, and exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from diff_cases import STEPS, WORDS, change_row, copied, diff, diff_json, flip_bit, trained
from launched import arguments_of, launched
from places import ROOT
from tiny_run import TinyRun


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/base and runs that differ from it in one setting."""
    folder = tmp_path_factory.mktemp("diff")
    trained(folder, tiny_text, "base")
    trained(folder, tiny_text, "seed", "train.seed=1")
    trained(folder, tiny_text, "beta", "optim.beta2=0.9")
    trained(folder, tiny_text, "free", "train.save_every=6", "train.micro_batch_size=4")
    return folder


def test_equal_runs_are_equal_through_their_last_step(folder: Path) -> None:
    text = diff(folder, "base", "free", code=0)
    assert f"equal through step {STEPS} Loss and gradient norm have the same bits" in text
    assert "train.micro_batch_size * config 8 4" in text or "train.micro_batch_size * config" in text
    assert "The checkpoints of step 12 are equal in both." in text
    found = diff_json(folder, "base", "free", code=0)
    assert (found["schema"], found["equal"], found["equal_through"]) == ("mudd_core.diff/1", True, STEPS)
    assert all(not one["affects_training"] for one in found["settings"])


def test_another_seed_is_named_before_the_first_step(folder: Path) -> None:
    text = diff(folder, "base", "seed", code=1)
    assert text.index("train.seed seed 0 1") < text.index("first step that differs: 1 ")
    assert "affects the training is train.seed (0 in A, 1 in B)." in text


def test_compare_names_the_command_of_the_first_difference(folder: Path) -> None:
    done = launched(folder, "compare", "runs/base", "runs/beta")
    (line,) = (line for line in done.stdout.splitlines() if " diff " in line)
    again = launched(folder, *arguments_of(line))
    assert again.returncode == 1 and "first value that differs: in step 1, " in again.stdout
    assert " diff " not in launched(folder, "compare", "runs/base", "runs/free").stdout


def test_another_optimizer_value_is_named(folder: Path) -> None:
    found = diff_json(folder, "base", "beta", code=1)
    (setting,) = found["settings"]
    assert setting == {
        "kind": "config",
        "name": "optim.beta2",
        "a": "0.95",
        "b": "0.9",
        "affects_training": True,
    }
    assert found["first_step"] == found["logged"]["first_step"] == 2 and found["equal_through"] == 1
    assert found["checkpoints"]["first_step"] == 4 and "embed" in found["checkpoints"]["names"]


def test_a_flipped_bit_of_a_weight_is_named_although_the_logs_are_equal(folder: Path) -> None:
    flip_bit(copied(folder, "flipped"), 8, "blocks.0.attn.q.w")
    text = diff(folder, "base", "flipped", code=1)
    assert "settings: equal" in text and "first step that differs: 8 " in text
    assert "The checkpoints of step 4 are equal in both." in text
    assert (
        "The checkpoints of step 8 differ in blocks.0.attn.q.w; " in text
        and " other tensors are equal." in text
    )
    assert "No recorded setting that affects the training differs" in text
    assert diff_json(folder, "base", "flipped", code=1)["equal_through"] == 7


def test_a_shorter_run_is_equal_through_its_last_step(folder: Path, tiny_text: Path) -> None:
    run = TinyRun(folder / "runs" / "short", tiny_text, (*WORDS, "train.stop_at=6"))
    assert run.finish_here() == 75
    text = diff(folder, "short", "base", code=0)
    assert "equal through step 6 " in text
    assert "A ends at step 6, B at step 12; the later steps of B are compared with nothing." in text
    assert "equal through step 4 " in diff(folder, "base", "runs/short/checkpoints/step-4", code=0)


def test_another_row_of_the_data_is_named(folder: Path, tmp_path: Path, tiny_text: Path) -> None:
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    change_row(folder, text, 3)
    trained(folder, text, "row", f"data.cache_dir={tmp_path / 'cache'}")
    found = diff_json(folder, "base", "row", code=1)
    kinds = {one["kind"]: one["name"] for one in found["settings"] if one["affects_training"]}
    assert kinds["data"] in ("token cache", "seal of the cache")
    assert found["first_step"] == found["logged"]["first_batch_step"] == 3


def test_the_rows_of_a_run_are_its_own_and_the_change_is_said(
    folder: Path, tmp_path: Path, tiny_text: Path
) -> None:
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    own = f"data.cache_dir={tmp_path / 'cache'}"
    trained(folder, text, "before", own)
    caches = list((tmp_path / "cache").iterdir())
    own_rows = launched(folder, "data", "show", "--workdir=runs/before").stdout
    change_row(folder, text, 1)
    trained(folder, text, "after", f"data.cache_dir={tmp_path / 'other'}")
    done = launched(folder, "diff", "runs/before", "runs/after")
    said = "data.path is equal, but the text at this path changed between the starts of the runs."
    assert said in " ".join(done.stdout.split())
    commands = [line for line in done.stdout.splitlines() if " data show " in line]
    shown = [launched(folder, *arguments_of(line)) for line in commands]
    assert len(shown) == 2 and all("--workdir=runs/" in line for line in commands)
    assert shown[1].returncode == 0, shown[1].stderr
    assert shown[0].stdout == own_rows != shown[1].stdout and list((tmp_path / "cache").iterdir()) == caches
    assert said not in " ".join(launched(folder, "diff", "runs/base", "runs/after").stdout.split())


def test_a_resume_at_another_level_is_listed_but_affects_nothing(folder: Path, tiny_text: Path) -> None:
    run = TinyRun(folder / "runs" / "resumed", tiny_text, (*WORDS, "train.stop_at=4"))
    assert run.finish(MUDD_MAX_ISA="portable") == 75
    run.words = WORDS
    run.trained()
    found = diff_json(folder, "base", "resumed", code=0)
    kinds = {one["kind"]: one for one in found["settings"]}
    assert kinds["resumes"]["b"] == "4" and "portable to step 4" in kinds["level"]["b"]
    assert all(not one["affects_training"] for one in found["settings"])


@pytest.fixture
def changed_log(folder: Path) -> Iterator[Path]:
    """Yield a copy of the base whose last logged loss is another one."""
    run = copied(folder, "changed")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    last = [row for row in rows if "loss" in row][-1]
    last["loss"] *= 1.5
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield run
    shutil.rmtree(run)


def test_one_changed_number_in_the_log_is_the_step(folder: Path, changed_log: Path) -> None:
    text = diff(folder, "base", changed_log.name, code=1)
    assert f"first step that differs: {STEPS} " in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "[diff] RUN: expected two runs, checkpoints or records, got none; type: "),
        (("base",), "got runs/base alone"),
        (("base", "base"), "[diff] runs/base: expected another run, got runs/base again"),
        (("base", "seed", "beta"), "[diff] RUN: expected two runs, got 3"),
        (
            ("base", "absent"),
            "[diff] runs/absent: expected the folder of a run, got a path that does not exist",
        ),
        (("base", "seed", "--steps=3"), "[diff] unknown option"),
        (
            ("runs/base/checkpoints/step-99", "seed"),
            "[diff] runs/base/checkpoints/step-99: expected a checkpoint that exists, got step 99; the run has steps "
            "4, 8, 12",
        ),
        (
            ("runs/base/checkpoints/step-8", "runs/base/checkpoints/step-4"),
            "expected another run than A, got runs/base/checkpoints/step-4: both are of the run runs/base",
        ),
    ],
)
def test_wrong_arguments_end_with_code_2(folder: Path, words: tuple[str, ...], text: str) -> None:
    assert text in diff(folder, *words, code=2)


def test_runs_of_other_families_cannot_be_compared(folder: Path, tiny_text: Path) -> None:
    words = ("train.steps=2", "data.tokenizer=bytes")
    TinyRun(folder / "runs" / "gpt", tiny_text, words, config=ROOT / "configs" / "gpt2" / "tiny.py").trained()
    text = diff(folder, "base", "gpt", code=2)
    assert "[diff] B: expected a run of the family transformer_pp as A, got gpt2" in text


def test_runs_without_a_common_step_cannot_be_compared(folder: Path) -> None:
    for name, kept in (("odd", 1), ("even", 0)):
        run = copied(folder, name)
        shutil.rmtree(run / "checkpoints")
        lines = (run / "metrics.jsonl").read_text().splitlines()
        found = [line for line in lines if json.loads(line)["step"] % 2 == kept]
        (run / "metrics.jsonl").write_text("\n".join(found) + "\n")
        (run / "summary.json").unlink()
    text = diff(folder, "odd", "even", code=2)
    assert "[diff] A and B: expected a step that both runs have logged or saved, got none" in text


def test_a_damaged_checkpoint_is_named_with_its_run_and_its_path_once(folder: Path) -> None:
    run = copied(folder, "damaged")
    manifest = run / "checkpoints" / "step-8" / "manifest.json"
    manifest.write_text("{}")
    said = "The checkpoint of step 8 in B is damaged and was not compared: "
    assert said in diff(folder, "base", "damaged", code=0)
    manifest.unlink()
    text = diff(folder, "base", "damaged", code=0)
    assert f"{said}runs/damaged/checkpoints/step-8/manifest.json is missing." in text
    assert text.count("manifest.json") == 1


def test_without_a_log_only_checkpoints_are_compared(folder: Path) -> None:
    run = copied(folder, "silent")
    (run / "metrics.jsonl").unlink()
    assert "B has no metrics.jsonl: no loss was compared." in diff(folder, "base", "silent", code=0)
    for manifest in run.glob("checkpoints/*/manifest.json"):
        manifest.unlink()
    text = diff(folder, "base", "silent", code=2)
    assert "B has no metrics.jsonl. The checkpoint of step 4 in B is damaged" in text
