"""A second experiment with the same config: the refused command names the one that starts it."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launched import launched
from mudd_core.checkpoint.steps import step_name
from mudd_core.config import OtherConfigError, load_config, read_config
from mudd_core.config.saved import differences
from mudd_core.run.store import longer
from mudd_core.run.store.other_config import refused_command
from tiny_run import CONFIG, TinyRun

NAME = "tiny_run"  # name of the config; its default folder is runs/tiny_run
LIMITS = ("train.steps=2", "train.stop_at=1", "train.batch_size=2", "sample.max_tokens=1")


@pytest.fixture(scope="module")
def here(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with run.py, its stopped run in runs/, and another text. Tests add folders to runs/ only."""
    folder = tmp_path_factory.mktemp("second")
    shutil.copy(CONFIG, folder / "run.py")
    (folder / "my_text.txt").write_text("a line of my own text\n" * 600)
    words = (
        "--config=run.py",
        f"data.path={tiny_text}",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        *LIMITS,
    )
    assert launched(folder, *words).returncode == 75
    return folder


def line_after(error: str, title: str) -> list[str]:
    """Return the arguments of the command that a message prints after a title."""
    lines = error.splitlines()
    place = next(i for i, line in enumerate(lines) if line.endswith(f"{title}:"))
    words = shlex.split(lines[place + 1])
    return words[next(i for i, word in enumerate(words) if word.endswith("launch.py")) + 1 :]


def test_the_first_command_of_the_refusal_starts_the_second_experiment(here: Path) -> None:
    words = ["--config=run.py", "data.path=my_text.txt", "data.cache_dir=cache", *LIMITS]
    done = launched(here, *words)
    assert done.returncode == 2 and done.stderr.splitlines()[0].endswith(
        "another config. To start a new run:"
    )
    new = line_after(done.stderr, "To start a new run")
    assert new == [*words, f"--workdir=runs/{NAME}-2"]
    assert line_after(done.stderr, "To resume it as it was") == [f"--workdir=runs/{NAME}"]
    assert done.stderr.index("To resume") < done.stderr.index("data.path: saved")
    again = launched(here, *new)
    assert again.returncode == 75, again.stderr
    assert (
        json.loads((here / "runs" / f"{NAME}-2" / "config.json").read_text())["data"]["path"] == "my_text.txt"
    )
    third = launched(here, *words)  # the free name is the next one
    assert line_after(third.stderr, "To start a new run")[-1] == f"--workdir=runs/{NAME}-3"
    shutil.rmtree(here / "runs" / f"{NAME}-2")


def test_a_plan_says_that_training_is_refused_and_prints_the_command(here: Path) -> None:
    words = ["--config=run.py", "data.path=my_text.txt"]
    done = launched(here, *words, "--plan")
    assert done.returncode == 0 and "parameters" in done.stdout
    new = line_after(done.stdout, "To start a new run")
    assert new == [*words, f"--workdir=runs/{NAME}-2"]
    assert "refused" not in launched(here, *new, "--plan").stdout
    assert not (here / "runs" / f"{NAME}-2").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("data.path=nofile.txt",),
        ("data.path=nofile.txt", "--plan"),
        ("data.tokenizer=nofile.json",),
        ("start.load_parameters_path=nofile",),
    ],
    ids=" ".join,
)
def test_a_missing_file_is_named_before_anything_else(here: Path, words: tuple[str, ...]) -> None:
    done = launched(here, "--config=run.py", *words)
    assert done.returncode == 2 and "nofile" in done.stderr.splitlines()[0]
    assert "To start a new run" not in done.stderr and not done.stdout


def test_a_field_for_a_named_run_starts_from_its_saved_config(here: Path) -> None:
    done = launched(here, f"--workdir=runs/{NAME}", "optim.lr=0.1")
    saved = f"--config=runs/{NAME}/config.json"
    assert line_after(done.stderr, "To start a new run") == [
        saved,
        "optim.lr=0.1",
        f"--workdir=runs/{NAME}-2",
    ]


def test_a_second_run_of_imported_weights_starts_from_them(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "imported", tiny_text, LIMITS)
    run.stopped()
    steps = run.workdir / "checkpoints"
    (steps / step_name(1)).rename(steps / step_name(0))  # the place of imported weights
    done = launched(tmp_path, "--workdir=imported", "optim.lr=0.1")
    new = line_after(done.stderr, "To start a new run")
    assert f"start.load_parameters_path=imported/checkpoints/{step_name(0)}" in new


def test_a_program_in_python_gets_calls(here: Path) -> None:
    code = (
        "import mudd_core as mc\n"
        "config = mc.load_config('run.py', {'data.path': 'PATH'})\n"
        f"mc.Trainer(config, 'runs/{NAME}').fit()\n"
    )

    def error_of(path: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code.replace("PATH", path)], cwd=here, capture_output=True, text=True
        )
        return done.stderr

    said = error_of("my_text.txt")
    assert f"To start a new run:\n  mc.Trainer(config, workdir='runs/{NAME}-2')\n" in said
    assert f"To resume it as it was:\n  mc.Trainer('runs/{NAME}')\n" in said
    assert "--workdir" not in said and "launch.py" not in said
    assert "nofile.txt" in error_of("nofile.txt").splitlines()[-1]


@pytest.mark.parametrize("folder", ["--config=run.py", f"--workdir=runs/{NAME}"])
def test_steps_that_epochs_would_replace_are_refused(here: Path, folder: str) -> None:
    done = launched(here, folder, "train.epochs=2", "train.steps=50", "--plan")
    assert done.returncode == 2
    assert (
        "[config] train.steps: train.epochs=2 sets the number of steps; add train.epochs=0, or" in done.stderr
    )


@pytest.mark.parametrize(
    "given",
    [
        "{'train.epochs': 2, 'train.steps': 50}",
        "['train.epochs=2', 'train.steps=50']",
        "train_epochs=2, train_steps=50",
        "train_epochs=2).replace(train_steps=50",
    ],
)
def test_python_refuses_steps_that_epochs_would_replace(tmp_path: Path, given: str) -> None:
    code = f"import mudd_core as mc; mc.load_config('tiny.py', {given})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    told = "[config] train.steps: train.epochs=2 sets the number of steps; add train.epochs=0, or use train.stop_at=N"
    assert done.returncode == 1 and told in done.stderr.splitlines()[-1]


def test_a_section_with_all_its_fields_is_no_change_of_the_steps() -> None:
    config = load_config("tiny.py", {"train.epochs": 2})
    assert config.replace({"train": dataclasses.asdict(config.train)}) == config


def test_a_longer_run_gets_a_free_name(here: Path) -> None:
    saved = here / "runs" / NAME
    line = longer.in_new_folder(str(saved), read_config(saved / "config.json"), 2, 1, ["launch.py"])
    assert f"--workdir={saved}-to-3" in line
    (here / "runs" / f"{NAME}-to-3").mkdir()
    assert longer.longer_workdir(str(saved), 3) == f"{saved}-to-3-2"


@pytest.mark.parametrize(("schedule", "way"), [("linear", "NEW COMMAND"), ("constant", "train.extend=true")])
def test_adapters_are_trained_longer_without_the_moments_that_they_cannot_read(
    schedule: str, way: str
) -> None:
    words = ["tune.method=lora", "start.load_parameters_path=base", f"optim.schedule={schedule}"]
    saved, asked = (load_config("tiny.py", [*words, f"train.steps={steps}"]) for steps in (40, 60))
    error = OtherConfigError(differences(saved, asked))
    said = str(refused_command(error, "runs/x", saved, asked, 40, ["launch.py"], "NEW COMMAND"))
    assert way in said and "start.keep_optimizer" not in said
