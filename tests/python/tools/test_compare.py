"""`compare A B` of trained runs: commands as typed; NumPy finds the first step that differs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from compared_runs import Row, changed, column, compare, first_by_numpy, first_printed, rows
from launched import launched
from tiny_run import TinyRun

STEPS = 12
COMMON = (f"train.steps={STEPS}", "train.eval_every=4", "train.save_every=4", "log.batches=true")
RUNS: dict[str, tuple[str, ...]] = {
    "base": (),
    "again": (),
    "seed": ("train.seed=1",),
    "beta": ("optim.beta2=0.9",),
    "batch": ("train.batch_size=16", "train.log_every=3", "log.batches=false"),
}


@pytest.fixture(scope="module")
def runs(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/<name> for every name of RUNS, and `halves`, resumed at another level."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "runs").mkdir()
    for name, words in RUNS.items():
        TinyRun(folder / "runs" / name, tiny_text, (*COMMON, *words)).trained()
    halves = TinyRun(folder / "runs" / "halves", tiny_text, (*COMMON, "train.stop_at=8"))
    assert halves.finish(MUDD_MAX_ISA="portable") == 75, halves.tail
    halves.words = COMMON
    halves.finished()
    return folder


def test_equal_runs_are_equal_in_everything(runs: Path) -> None:
    printed = compare(runs, "base", "again")
    assert first_by_numpy(runs, "base", "again") is None
    assert f"first difference of A and B: none up to the last common step, {STEPS}\n" in printed
    for line in ("config: equal", "documents and tokenizer: equal", "program and machine: equal"):
        assert f"{line}\n" in printed
    assert f"final hash: equal\n  {_summary(runs, 'base')['final_hash']}" in printed
    chart = [line.partition("|")[2] for line in printed.splitlines() if "|" in line]
    assert {mark for line in chart for mark in line} == {" ", "*"}


def _summary(folder: Path, name: str) -> Row:
    found: Row = json.loads((folder / "runs" / name / "summary.json").read_text())
    return found


def test_another_seed_differs_in_batches_from_the_first_step(runs: Path) -> None:
    printed = compare(runs, "base", "seed")
    assert first_printed(printed) == first_by_numpy(runs, "base", "seed") == 1
    assert "config: 1 field differs\n  field       A  B\n  train.seed  0  1\n" in printed
    hashes = [rows(runs, name)[0]["batch_hash"] for name in ("base", "seed")]
    assert f"hash {hashes[0]} in A,\n  {hashes[1]} in B" in printed
    assert "final hash: B not equal to A\n" in printed
    commands = [line for line in printed.splitlines() if " data show " in line]
    assert len(commands) == 2
    shown = []
    for command in commands:  # exactly as the page has them
        words = shlex.split(command)
        assert any(word.startswith("--workdir=runs/") for word in words)
        done = launched(runs, *words[next(i for i, word in enumerate(words) if word == "data") :])
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert shown[0] != shown[1] and all("row 0 of step 1" in text for text in shown)


def test_another_optimizer_setting_differs_with_equal_batches(runs: Path) -> None:
    printed = compare(runs, "base", "beta")
    step = first_by_numpy(runs, "base", "beta")
    assert step is not None and step > 1 and first_printed(printed) == step
    assert "  optim.beta2  0.95  0.9\n" in printed and "config: 1 field differs" in printed
    assert f"The ids of the batches have the same hashes up to step {step}." in printed
    for key, label in (("loss", "loss"), ("grad_norm", "gradient norm")):
        values = [float(column(runs, name, key)[step - 1]) for name in ("base", "beta")]
        (line,) = (one for one in printed.splitlines() if re.match(rf"  {label}  +\d", one))
        assert [float(word) for word in line.split()[-2:]] == values
    assert "learning rate differs" not in printed


@pytest.mark.parametrize("key", ["loss", "grad_norm"])
@pytest.mark.parametrize("step", [1, 6, STEPS])
def test_one_bit_of_one_number_is_a_difference(runs: Path, key: str, step: int) -> None:
    def flip(found: list[Row]) -> None:
        (row,) = (one for one in found if one["step"] == step and "loss" in one)
        row[key] = float(np.nextafter(row[key], np.inf))

    changed(runs, flip)
    printed = compare(runs, "base", "changed")
    assert first_printed(printed) == first_by_numpy(runs, "base", "changed") == step
    assert "have the same hashes" in printed


def test_numbers_that_are_not_finite_are_equal_to_each_other_alone(runs: Path) -> None:
    def lose(found: list[Row]) -> None:
        for row in found:
            if row["step"] == 5:
                row |= {"loss": None, "grad_norm": None}

    changed(runs, lose)
    changed(runs, lose, "changed_too")
    assert first_printed(compare(runs, "changed", "changed_too")) is None
    printed = compare(runs, "base", "changed")
    assert first_printed(printed) == 5 and "not finite" in printed


def test_a_batch_that_differs_before_the_numbers_is_named(runs: Path) -> None:
    def swap(found: list[Row]) -> None:
        for row in found:
            if row["step"] >= 3 and "batch_hash" in row:
                row["batch_hash"] = "0123456789abcdef"
            if row["step"] >= 4 and "loss" in row:
                row["loss"] += 1.0

    changed(runs, swap)
    printed = compare(runs, "base", "changed")
    assert first_printed(printed) == 4 and "differ first at step 3" in " ".join(printed.split())


def test_halves_of_two_levels_are_named_with_their_steps(runs: Path) -> None:
    printed = compare(runs, "halves", "base")
    level = mc.isa()
    assert re.search(rf"^  level +portable to step 8, then {level}  {level}$", printed, re.MULTILINE), printed
    assert first_printed(printed) == first_by_numpy(runs, "halves", "base")
    other = compare(runs, "base", "again")
    assert f"level {level}" in " ".join(other.split())


def test_other_batch_sizes_and_periods_are_compared_at_common_steps_and_tokens(runs: Path) -> None:
    printed = compare(runs, "base", "batch")
    text = " ".join(printed.split())
    assert "Compared at the 4 steps that both have logged, 3 to 12 (train.log_every 1 and 3)" in text
    assert "the values diverge by step 3." in text and first_printed(printed) == 3
    assert "log.batches=true in both" in text and "train.log_every *" in printed
    tokens = STEPS * 8 * 64  # the tokens of base, which has fewer
    (line,) = (one for one in printed.splitlines() if one.startswith(f"  training, {tokens:,} tokens"))
    steps, losses = (column(runs, "batch", key) for key in ("step", "loss"))
    want = [column(runs, "base", "loss")[-1], np.interp(STEPS / 2, steps, losses)]
    assert line.split()[-3:-1] == [f"{value:.6f}" for value in want]
    assert f"{64 * 8} " in printed and " tokens " in printed  # the charts' axis is tokens


def test_losses_are_those_of_the_logs(runs: Path) -> None:
    printed = compare(runs, "base", "seed")
    validations = {name: [row for row in rows(runs, name) if "val_loss" in row] for name in ("base", "seed")}
    best = {name: min(found, key=lambda row: row["val_loss"]) for name, found in validations.items()}
    lines = printed.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  validation, best"))
    values = [best[name]["val_loss"] for name in ("base", "seed")]
    texts = [f"{values[0]:.6f}", f"{values[1]:.6f}", f"{values[1] - values[0]:+.6f}"]
    assert lines[place].split()[-3:] == texts
    assert lines[place + 1].split() == ["at", "step", *(str(best[name]["step"]) for name in ("base", "seed"))]
    (line,) = (one for one in printed.splitlines() if one.startswith(f"  training, step {STEPS}"))
    assert line.split()[-3:-1] == [f"{column(runs, name, 'loss')[-1]:.6f}" for name in ("base", "seed")]
    speeds = [np.median(column(runs, name, "tokens_per_second")) for name in ("base", "seed")]
    (line,) = (one for one in printed.splitlines() if one.startswith("  tokens/s, median"))
    assert line.split()[-2:] == [f"{speed:,.0f}" for speed in speeds]


def test_the_folder_of_a_checkpoint_is_the_run_up_to_its_step(runs: Path) -> None:
    printed = compare(runs, "runs/base/checkpoints/step-8", "beta")
    assert f"up to step 8 of {STEPS}" in printed and "A: none, since the run has not ended" in printed
    assert "training, step 8 " in printed and first_printed(printed) == first_by_numpy(runs, "base", "beta")
    printed = compare(runs, "base", f"runs/again/checkpoints/step-{STEPS}")
    assert "final hash: equal" in printed


def test_many_runs_are_compared_with_the_first(runs: Path) -> None:
    printed = compare(runs, "base", "again", "seed", "beta")
    found = re.findall(r"^first difference of A and ([BCD]): (?:step (\d+)|none)", printed, re.MULTILINE)
    steps = [first_by_numpy(runs, "base", name) for name in ("again", "seed", "beta")]
    assert [(letter, int(step) if step else None) for letter, step in found] == list(
        zip("BCD", steps, strict=True)
    )
    assert "final hash: C, D not equal to A" in printed


def test_runs_of_other_families_are_compared(runs: Path, tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    shutil.copytree(runs / "runs" / "base", tmp_path / "runs" / "base")
    words = ("model.d_model=32", "model.n_layer=1", "model.n_head=2", "train.steps=2", "train.seq_len=32")
    done = launched(
        tmp_path,
        "--config=gpt2/tiny.py",
        "--workdir=runs/gpt2",
        f"data.path={tiny_text}",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        "data.tokenizer=bytes",
        "train.log_every=1",
        "eval.max_batches=1",
        *words,
    )
    assert done.returncode == 0, done.stderr
    printed = compare(tmp_path, "base", "gpt2")
    assert "gpt2" in printed and "model.family" in printed and "FLOP" in printed
    assert first_printed(printed) == 1


def test_facts_of_program_data_and_validation_are_compared(runs: Path) -> None:
    def fewer_targets(found: list[Row]) -> None:
        for row in found:
            row |= {"targets": 64} if "val_loss" in row else {}

    changed(runs, fewer_targets)
    file = runs / "runs" / "changed" / "run.json"
    facts = json.loads(file.read_text())
    own = {"model.family": {"name": "a.py:A", "sha256": "ab" * 32}}
    file.write_text(json.dumps(facts | {"own_files": own}))
    (runs / "runs" / "changed" / "model_family.py").write_text("1 / 0")  # the file is not run
    assert "ab" * 8 in compare(runs, "base", "changed")
    file.write_text(json.dumps(facts | {"fp32_order": -1, "data": "0" * 16}))
    printed = compare(runs, "base", "changed")
    assert f"  token cache  {facts['data']}  {'0' * 16}\n" in printed
    order = facts["fp32_order"]
    assert re.search(rf"program and machine differ\n +A +B\n  fp32_order  {order} +-1\n", printed)
    assert "Validations have different numbers of targets: 1,024, 64." in printed


def test_folders_of_a_glob_that_are_not_runs_are_left_out(runs: Path, tmp_path: Path) -> None:
    for name in ("cache", "again", "base"):
        (tmp_path / name).symlink_to(runs / "runs" / name)
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").mkdir()
    (tmp_path / "page.html").touch()
    names = sorted(path.name for path in tmp_path.iterdir())
    done = launched(tmp_path, "compare", *names)
    assert done.returncode == 0 and "config: equal\n" in done.stdout
    assert done.stderr == "note: not compared, because not the folder of a run: cache, page.html\n"
    for words, what in (
        (("base", "cache"), "a folder without"),
        (("base", "again", "gone"), "a path that does"),
    ):
        done = launched(tmp_path, "compare", *words)
        assert done.returncode == 2 and f"expected the folder of a run, got {what}" in done.stderr
