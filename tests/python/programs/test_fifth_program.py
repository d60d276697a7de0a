"""A program is one folder: a fifth program with two keys works, and so does a copy without one of the four."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import mudd_core

PACKAGE = Path(mudd_core.__file__).parent
COMMAND = ("-m", "mudd_core")
FIFTH = '''"""A program with two keys."""

from mudd_core.config import read_config
from mudd_core.programs.flags import split_flags, value_of
from mudd_core.programs.program import Program
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import mapped
from mudd_core.programs.table import Setting, apply, with_own_words
from mudd_core.run.report.style import Style

ROWS = (mapped("fifth", "rounds", 7, "train.steps"), mapped("fifth", "pace", 0.5, "optim.lr"))


class Fifth(Program):
    """A program with two flags."""

    name = grammar = "fifth"
    commands = ("fifth",)
    flags = True

    def rows(self):
        return ROWS

    def resolve(self, asked):
        rows = {row.name: row for row in ROWS}
        typed, own = split_flags("fifth", asked.words, rows)
        settings = {name: Setting(row.default, row.default) for name, row in rows.items()}
        for name, (word, text) in typed.items():
            value = value_of("fifth", name, rows[name].default, text)
            settings[name] = Setting(value, rows[name].default, word=word)
        applied = with_own_words("fifth", apply("fifth", rows, read_config("tiny.py"), settings), own)
        return Resolved("fifth", applied.config, origins=applied.origins, style="fifth")

    def style(self, config):
        return FifthStyle


class FifthStyle(Style):
    """One line an update."""

    ours = False

    def step(self, record):
        return [f"round {record.step}"]


PROGRAM = Fifth()
'''


def copied(folder: Path, without: str = "") -> Path:
    """Return a folder from which to import the package: links to its files, and a separate folder `programs`."""
    package = folder / "mudd_core"
    (package / "programs").mkdir(parents=True)
    for file in PACKAGE.iterdir():
        if file.name != "programs":
            (package / file.name).symlink_to(file)
    for name in ("_core", "_h5", "_mpi"):  # an editable install has them in another folder
        spec = importlib.util.find_spec(f"mudd_core.{name}")
        if spec is not None and spec.origin and not (package / Path(spec.origin).name).exists():
            (package / Path(spec.origin).name).symlink_to(spec.origin)
    for file in (PACKAGE / "programs").iterdir():
        if file.name not in (without, "__pycache__"):
            (package / "programs" / file.name).symlink_to(file)
    (folder / "configs").symlink_to(PACKAGE.parent.parent / "configs")
    return folder


def ran(folder: Path, *words: str) -> str:
    """Return the output of Python with these arguments, which must end well."""
    # -S ignores the .pth file of an editable install, which would import the package of this checkout.
    packages = Path(np.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{packages}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-S", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_folder_is_a_program(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "mudd_core" / "programs" / "fifth").mkdir()
    (folder / "mudd_core" / "programs" / "fifth" / "__init__.py").write_text(FIFTH)
    assert "--pace 0.5" in ran(folder, *COMMAND, "fifth", "--help")
    assert "argument     --rounds 3" in ran(folder, *COMMAND, "fifth", "--rounds", "3", "--explain=rounds")
    assert "fifth" in ran(folder, *COMMAND, "--config=tiny.py", "log.style=fifth", "--explain=log.style")
    text = folder / "text.txt"
    text.write_text("to be or not to be " * 4000)
    assert "round 3" in ran(
        folder,
        *COMMAND,
        "fifth",
        "--rounds=3",
        "--workdir=run",
        f"data.path={text}",
        "data.tokenizer=bytes",
        "train.batch_size=2",
        "train.seq_len=16",
    )


def test_a_plain_run_needs_no_program(tmp_path: Path) -> None:
    folder = copied(tmp_path, without="maxtext")
    assert "train.steps = 5" in ran(
        folder, *COMMAND, "--config=tiny.py", "train.steps=5", "--explain=train.steps"
    )
    code = "from mudd_core.interop import systems; print(*systems())"
    assert "maxtext" not in ran(folder, *COMMAND, "train", "--help")
    assert ran(folder, "-c", code).split() == ["hf", "mu_transformer"]
