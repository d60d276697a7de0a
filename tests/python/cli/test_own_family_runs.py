"""Runs whose architecture is a file of the user: bits, copies, changed files, errors, kills, ranks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mpi_ranks import ENVIRONMENT, needs_mpi
from own_cases import STATE_SPACE, plus_file
from places import ROOT
from rank_faults import Kills, run_of
from tiny_run import TinyRun

SHORT = ("train.steps=8", "train.save_every=2", "train.eval_every=4", "train.log_every=2")


def own_run(folder: Path, text: Path, name: str, *words: str) -> TinyRun:
    return TinyRun(folder, text, (f"--model.family={name}", *SHORT, *words))


def command(*words: str) -> tuple[int, str]:
    """Return the exit code and both streams of launch.py."""
    argv = [sys.executable, str(ROOT / "launch.py"), *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def test_a_changed_file_is_named_and_the_copy_resumes(tiny_text: Path, tmp_path: Path) -> None:
    file, work = plus_file(tmp_path), tmp_path / "run"
    first = own_run(work, tiny_text, f"{file}:Plus", "train.stop_at=3")
    first.stopped()
    copy, before = work / "model_family.py", file.read_text()
    assert copy.read_text() == before
    hashes = json.loads((work / "run.json").read_text())["own_files"]["model.family"]
    file.write_text(before.replace('"final_norm"', '"last_norm"'))
    changed = own_run(work, tiny_text, f"{file}:Plus")
    assert changed.finish() == 2
    told = re.search(rf"\[resume\] model.family: {file} has changed since .*", changed.tail)
    assert (
        told and f"SHA-256 {hashes['sha256'][:16]}... then, " in told[0] and "\n" not in changed.tail.strip()
    ), told
    way_out = re.search(r"resume with the run's copy: model.family=(\S+),", changed.tail)
    assert way_out
    resumed = own_run(work, tiny_text, way_out[1], "train.stop_at=5")
    resumed.stopped()
    file.unlink()  # --workdir alone resumes the run too, because this user started it
    code, said = command(f"--workdir={work}", "train.stop_at=0")
    assert code == 0 and "\ndone: " in said, said
    code, said = command("export", f"--workdir={work}", f"--to={tmp_path}/out", "--system=hf")
    assert code == 2 and "--system=own writes any model by its own names" in said, said
    code, said = command("export", f"--workdir={work}", f"--to={tmp_path}/out")
    assert code == 0 and "by the names of the model" in said, said
    weights = load_file(tmp_path / "out" / "model.safetensors")
    saved = {}
    for part in (work / "checkpoints").glob("step-8/*.safetensors"):
        saved |= load_file(part)
    assert weights.keys() and all(np.array_equal(weights[name], saved[name]) for name in weights)
    code, said = command("sample", f"--workdir={work}", "--prompt=ab", "sample.max_tokens=3")
    assert code == 0, said
    opened = "import sys, mudd_core as mc; print(type(mc.load_run(sys.argv[1]).model.config).__name__)"
    done = subprocess.run([sys.executable, "-c", opened, str(work)], capture_output=True, text=True)
    assert done.stdout.strip() == "Plus", done.stderr


def test_a_copy_that_was_changed_is_refused(tiny_text: Path, tmp_path: Path) -> None:
    work = tmp_path / "run"
    assert own_run(work, tiny_text, f"{plus_file(tmp_path)}:Plus", "train.stop_at=2").finish() == 75
    (work / "model_family.py").write_text("raise SystemExit(0)\n")
    code, said = command("validate", f"--workdir={work}")
    assert code == 2 and "expected the run's copy with SHA-256" in said and said.count("\n") == 1, said


def test_a_saved_config_alone_runs_no_file(tiny_text: Path, tmp_path: Path) -> None:
    work = tmp_path / "run"
    assert own_run(work, tiny_text, f"{plus_file(tmp_path)}:Plus", "train.stop_at=2").finish() == 75
    code, said = command(f"--config={work}/config.json", f"--workdir={tmp_path}/other", "--plan")
    assert (
        code == 2
        and "a command runs only the files that its arguments name" in said
        and said.count("\n") == 1
    ), said
    named = f"--model.family={tmp_path}/plus.py:Plus"
    code, said = command(f"--config={work}/config.json", f"--workdir={tmp_path}/other", "--plan", named)
    assert code == 0 and "plan of" in said, said


HEAD = "from dataclasses import dataclass\nimport mudd_core as mc\nfrom mudd_core import nn\n"
CLASS = "@dataclass(frozen=True)\nclass Mine(mc.FamilyConfig):\n    pass\n"
BODY = "    x = nn.embedding(batch.inputs, 'embed', config.vocab_size, config.d_model, std=0.02)\n"
END = "mc.register_family(Mine, model)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"\[model.family\] expected FILE.py:NAME, got '.*mine.py:Mine': there is no file .*mine.py"),
        (
            HEAD,
            r"mine.py: Mine is missing; expected a config class Mine and mc.register_family\(Mine, model\)",
        ),
        (HEAD + CLASS, r"mine.py: Mine is not registered; expected a config class Mine"),
        (HEAD + "1 / 0\n", r"mine.py, line 4: ZeroDivisionError: division by zero"),
        (HEAD + "def f(:\n", r"mine.py, line 4: invalid syntax"),
        (
            HEAD + CLASS + "def model(config):\n    pass\n" + END,
            r"mine.py, line 9: TypeError: .*expected model\(config, batch, cache=None\), got model\(config\)",
        ),
        (
            HEAD + CLASS + "def model(config, batch):\n" + BODY + "    return x\n" + END,
            r"expected mc.Hidden\(states, head\), got Value",
        ),
        (
            HEAD
            + CLASS
            + "def model(config, batch):\n"
            + BODY
            + "    return mc.Hidden(batch.inputs, x)\n"
            + END,
            r"states: expected shape \[1, 1, 32\], got \[1, 1\]",
        ),
        (
            HEAD + CLASS + "def model(config, batch):\n" + BODY + "    return config.widht\n" + END,
            r"mine.py, line 9: AttributeError: 'Mine' object has no attribute 'widht'",
        ),
        (
            HEAD
            + CLASS
            + "def twice(x):\n    if x.any():\n        raise ValueError('a bad number')\n    return 2 * x\n"
            + "def model(config, batch):\n"
            + BODY
            + "    x = mc.custom(twice, lambda d, x: 2 * d, x)\n"
            + "    return mc.Hidden(x, nn.head(config, std=0.02))\n"
            + END,
            r"mine.py, line 9: ValueError: a bad number",
        ),
        (
            HEAD
            + CLASS
            + "def model(config, batch):\n"
            + BODY
            + "    x = mc.custom(lambda x: 2 * x, lambda d, x: d[:, :5], x)\n"
            + "    return mc.Hidden(x, nn.head(config, std=0.02))\n"
            + END,
            r"mine.py: \[custom\] result: expected float32\[1, 64, 32\]",
        ),
    ],
)
def test_a_mistake_is_one_line(text: str | None, said: str, tiny_text: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    run = own_run(tmp_path / "run", tiny_text, f"{file}:Mine")
    assert run.finish() == 2, run.tail
    errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and re.search(said, errors[0]), run.tail
    assert "Traceback" not in run.output


@needs_mpi
def test_a_mistake_on_ranks_is_one_line(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEAD + CLASS + "def model(config, batch):\n    return 1 / 0\n" + END)
    run = own_run(tmp_path / "run", tiny_text, f"{tmp_path}/mine.py:Mine", "--ranks=2")
    run.environment = ENVIRONMENT
    assert run.finish() == 2, run.tail
    assert run.output.count("mine.py, line 8: ZeroDivisionError") == 1 and "Traceback" not in run.output, (
        run.output
    )


@needs_mpi
def test_an_op_of_ones_own_on_two_ranks_is_killed_and_loses_no_bit(tiny_text: Path, tmp_path: Path) -> None:
    words = (f"--model.family={STATE_SPACE}",)
    whole = run_of(tmp_path / "whole", tiny_text, *words).finished()
    kills = Kills(tmp_path / "run", tiny_text, 2, words)
    for rank, point in [(1, "phase_backward:4"), (0, "before_rename")]:
        kills.kill(rank, point)
    assert kills.finish(whole)
