"""`compare A B`: commands as they are typed, in fresh processes; the first differing step against NumPy."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Float64, JsonObject
from mudd_core.run.report.page.records import Records
from mudd_core.run.store import metrics
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.compare.compared import ComparedRun, read_run
from mudd_core.tools.compare.first_difference import first_difference
from mudd_core.tools.compare.machine import machine_rows
from page_runs import update, validation, write_run
from places import ROOT
from tiny_run import TinyRun

Row = dict[str, Any]
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
    """A folder with runs/<name> for every name of RUNS, and `halves`, resumed at another level."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "runs").mkdir()
    for name, words in RUNS.items():
        run = TinyRun(folder / "runs" / name, tiny_text, (*COMMON, *words))
        assert run.finish() == 0, run.tail
    halves = TinyRun(folder / "runs" / "halves", tiny_text, (*COMMON, "train.stop_at=8"))
    assert halves.finish(MUDD_MAX_ISA="portable") == 75, halves.tail
    halves.words = COMMON
    assert halves.finish() == 0, halves.tail
    return folder


def launched(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command as it is typed, in a fresh process in a folder."""
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def compare(folder: Path, *names: str) -> str:
    """What the command prints about runs/<name>, or about other paths."""
    done = launched(folder, "compare", *(name if "/" in name else f"runs/{name}" for name in names))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert all(line.isascii() for line in done.stdout.splitlines())
    return done.stdout


def rows(folder: Path, name: str) -> list[Row]:
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def column(folder: Path, name: str, key: str) -> Float64:
    """A column of the updates of runs/<name>; NaN for null."""
    values = [row[key] for row in rows(folder, name) if "loss" in row]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def first_by_numpy(folder: Path, one: str, two: str) -> int | None:
    """The first step at which the bits of loss or gradient norm differ, of runs that log the same steps."""
    unequal = np.zeros(len(column(folder, one, "step")), bool)
    for key in ("loss", "grad_norm"):
        left, right = (column(folder, name, key).view(np.uint64) for name in (one, two))
        unequal |= left != right
    places = np.flatnonzero(unequal)
    return int(column(folder, one, "step")[places[0]]) if len(places) else None


def first_printed(printed: str) -> int | None:
    """The step of the line `first difference of A and B`; None for no difference up to the last common step."""
    (line,) = (line for line in printed.splitlines() if line.startswith("first difference of A and B"))
    found = re.fullmatch(r".*: step ([\d,]+)", line)
    assert found is not None or "none up to the last common step" in line, line
    return int(found[1].replace(",", "")) if found else None


def changed(folder: Path, change: Callable[[list[Row]], None], name: str = "changed") -> None:
    """Copy runs/base with other rows to runs/<name>."""
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    shutil.copytree(folder / "runs" / "base", folder / "runs" / name)
    found = rows(folder, "base")
    change(found)
    text = "".join(json.dumps(row) + "\n" for row in found)
    (folder / "runs" / name / "metrics.jsonl").write_text(text)


def test_equal_runs_are_equal_in_everything(runs: Path) -> None:
    printed = compare(runs, "base", "again")
    assert first_by_numpy(runs, "base", "again") is None
    assert f"first difference of A and B: none up to the last common step, {STEPS}\n" in printed
    for line in ("config: equal", "texts and tokenizer: equal", "program and machine: equal"):
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
    for command in commands:  # as they are typed
        words = shlex.split(command)
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
    assert "the numbers part by step 3." in text and first_printed(printed) == 3
    assert "log.batches=true in both" in text and "train.log_every *" in printed
    tokens = STEPS * 8 * 64  # of the base, the one with fewer
    (line,) = (one for one in printed.splitlines() if one.startswith(f"  training, {tokens:,} tokens"))
    steps, losses = (column(runs, "batch", key) for key in ("step", "loss"))
    want = [column(runs, "base", "loss")[-1], np.interp(STEPS / 2, steps, losses)]
    assert line.split()[-3:-1] == [f"{value:.4f}" for value in want]
    assert f"{64 * 8} " in printed and " tokens " in printed  # the charts are over tokens


def test_losses_are_those_of_the_logs(runs: Path) -> None:
    printed = compare(runs, "base", "seed")
    validations = {name: [row for row in rows(runs, name) if "val_loss" in row] for name in ("base", "seed")}
    best = {name: min(found, key=lambda row: row["val_loss"]) for name, found in validations.items()}
    lines = printed.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  validation, best"))
    values = [best[name]["val_loss"] for name in ("base", "seed")]
    texts = [f"{values[0]:.4f}", f"{values[1]:.4f}", f"{values[1] - values[0]:+.4f}"]
    assert lines[place].split()[-3:] == texts
    assert lines[place + 1].split() == ["at", "step", *(str(best[name]["step"]) for name in ("base", "seed"))]
    (line,) = (one for one in printed.splitlines() if one.startswith(f"  training, step {STEPS}"))
    assert line.split()[-3:-1] == [f"{column(runs, name, 'loss')[-1]:.4f}" for name in ("base", "seed")]
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


def test_a_run_that_trains_and_one_of_an_earlier_version_are_compared(runs: Path) -> None:
    def old(found: list[Row]) -> None:
        del found[6:]
        for row in found:
            for name in ("batch_hash", "grad_norm", "peak_share", "accuracy"):
                row.pop(name, None)

    changed(runs, old)
    folder = runs / "runs" / "changed"
    for name in ("summary.json", "events.jsonl"):
        (folder / name).unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 5.')  # torn
    printed = compare(runs, "base", "changed")
    assert first_printed(printed) is None and "B: none, since the run has not ended" in printed
    assert re.search(r"^  level +\w+ +not recorded$", printed, re.MULTILINE)


def test_runs_without_validations_of_one_step_and_of_none_are_compared(runs: Path) -> None:
    def first_alone(found: list[Row]) -> None:
        del found[1:]

    changed(runs, first_alone)
    printed = compare(runs, "base", "changed")
    assert "|" not in printed and "validation, last" in printed and first_printed(printed) is None
    changed(runs, list.clear)
    printed = compare(runs, "base", "changed")
    assert "first difference of A and B: unknown\n  They have logged no common step.\n" in printed


def test_facts_of_program_data_and_validation_are_compared(runs: Path) -> None:
    def fewer_targets(found: list[Row]) -> None:
        for row in found:
            row |= {"targets": 64} if "val_loss" in row else {}

    changed(runs, fewer_targets)
    file = runs / "runs" / "changed" / "run.json"
    facts = json.loads(file.read_text())
    own = {"model.family": {"name": "a.py:A", "sha256": "ab" * 32}}
    file.write_text(json.dumps(facts | {"own_files": own}))
    (runs / "runs" / "changed" / "model_family.py").write_text("")  # the hash is refused below
    done = launched(runs, "compare", "runs/base", "runs/changed")
    assert done.returncode == 2 and "expected the run's copy with SHA-256" in done.stderr
    file.write_text(json.dumps(facts | {"fp32_order": -1, "data": "0" * 16}))
    printed = compare(runs, "base", "changed")
    assert f"  token cache  {facts['data']}  {'0' * 16}\n" in printed
    order = facts["fp32_order"]
    assert re.search(rf"program and machine differ\n +A +B\n  fp32_order  {order} +-1\n", printed)
    assert "Validations are over other targets: 1,024, 64." in printed


def test_the_machine_of_steps_that_were_made_again_counts(tmp_path: Path) -> None:
    def event(name: str, step: int, level: str) -> JsonObject:
        return {"event": name, "step": step, "machine": {"level": level}}

    events = [
        {"event": "started", "machine": {"level": "avx2"}},
        event("resumed", 4, "amx_bf16"),
        event("resumed", 8, "avx512"),  # killed, then from an earlier checkpoint
        event("resumed", 6, "portable"),
        event("resumed", 20, "avx2"),  # no step of it was logged
    ]
    updates = Metrics.of_rows({"step": step, "loss": 1.0} for step in range(1, 13))
    records = Records(RunFolder(tmp_path), mc.load_config("tiny.py"), updates, Metrics(), events)
    (row,) = machine_rows([ComparedRun("A", "a", records), ComparedRun("B", "b", records)])
    assert row == ["level", *["avx2 to step 4, then amx_bf16 to step 6, then portable"] * 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected the folders of two runs or more, got none; type: "),
        (("runs/base",), "got runs/base alone; type: "),
        (
            ("runs/base", "runs/baes"),
            "runs/baes: expected the folder of a run, got a path where nothing is; did you ",
        ),
        (("runs/base", "runs"), "runs: expected the folder of a run, got a folder without config.json"),
        (("runs/base", "runs/base.log"), "runs/base.log: expected the folder of a run, got a file"),
        (
            ("runs/base", "./runs/base/"),
            "./runs/base/: expected another run, got runs/base again; name each once",
        ),
        (("runs/base", "runs/base/checkpoints/step-8"), "expected another run, got runs/base again"),
        (("runs/base", "runs/seed", "train.steps=3"), "train.steps=3: expected the folder of a run"),
        (("runs/base", "runs/seed", "--htlm=x"), "unknown option '--htlm"),
        (("runs/base",) * 9, "expected at most 8 runs, got 9"),
    ],
)
def test_mistakes_are_named_on_one_line(runs: Path, words: tuple[str, ...], said: str) -> None:
    done = launched(runs, "compare", *words)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: [compare] ") and said in done.stderr, done.stderr


def test_the_page_has_all_curves_and_loads_nothing(runs: Path) -> None:
    done = launched(runs, "compare", "runs/base", "runs/seed", "runs/batch", "--html=compared.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "page  compared.html\n", "")
    page = (runs / "compared.html").read_text("utf-8")
    assert len(page) < 1_000_000 and not re.search(r"(src|href)=\W?(http|//)|url\(|@import", page)
    for text in ("Training loss", "Validation loss", "A base", "B seed", "C batch", "train.seed"):
        assert text in page
    assert "First difference of A and B: step 1" in page


def test_text_of_a_run_is_never_read_as_html(runs: Path) -> None:
    hostile = "<script>alert(1)"  # a name may have no slash
    changed(runs, lambda found: None)
    file = runs / "runs" / "changed" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"name": hostile}))
    done = launched(runs, "compare", "runs/base", "runs/changed", "--html", "hostile.html")
    assert done.returncode == 0, done.stderr
    page = (runs / "hostile.html").read_text("utf-8")
    assert hostile not in page and "&lt;script&gt;alert(1)" in page


def test_help_names_the_arguments(runs: Path) -> None:
    done = launched(runs, "compare", "--help")
    assert (
        done.returncode == 0 and "--html FILE" in done.stdout and "compare runs/one runs/two" in done.stdout
    )


def test_the_best_validations_and_an_end_by_patience_are_marked(tmp_path: Path) -> None:
    found = [
        *(update(step) for step in range(1, 13)),
        validation(4, 2.5),
        validation(8, 3.0),
        validation(12, 2.75),
    ]
    for name in ("runs", "going"):
        write_run(tmp_path / name, found)
    ending = {"step": 12, "stopped": None, "final_hash": "00", "out_of_patience": True}
    ending |= {"best_step": 4, "best_val_loss": 2.5}
    (tmp_path / "runs" / "summary.json").write_text(json.dumps(ending))
    printed = compare(tmp_path, "./runs", "./going")
    assert re.search(r"A .* out of patience, step 12 of", printed), printed
    assert re.search(r"B .* step 12 of", printed) and printed.count("out of patience") == 1
    assert re.search(r"validation, best +2.5000 +2.5000 +\+0.0000\n +at step +4 +4\n", printed), printed
    assert launched(tmp_path, "compare", "runs", "going", "--html=page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert '"name":"A runs, best","color":0,"values":[2.5],"steps":[4]' in page
    assert '"name":"B going, best","color":1,"values":[2.5],"steps":[4]' in page


def test_metrics_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(
        tmp_path / "run", [update(1, batch_hash="0f"), update(2, batch_hash="1e"), validation(2, 2.5)]
    )
    opened: list[Path] = []

    def counted(path: Path, *, links: bool = True) -> bytes:
        opened.append(path)
        return read_bytes(path, links=links)

    monkeypatch.setattr(metrics, "read_bytes", counted)
    run = read_run("A", str(folder.path))
    assert run.batch_hashes == {1: "0f", 2: "1e"} and opened == [folder.metrics_file]
    assert first_difference(run, run).hashed and len(opened) == 1
