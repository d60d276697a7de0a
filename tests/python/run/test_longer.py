"""More steps for an existing run: in place if the schedule allows it, otherwise by a command that is printed."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine
from fake_runs import make, rows_of, unbroken
from launched import arguments_of, launched
from mudd_core.base.errors import UserError
from mudd_core.checkpoint import manifest, manifest_reader
from mudd_core.config import (
    Config,
    DataConfig,
    OptimConfig,
    OtherConfigError,
    TrainConfig,
    config_hash,
    load_config,
)
from mudd_core.config.fields import replace_path
from mudd_core.run.store.longer import fields_in_new_folder
from mudd_core.run.store.other_config import refused_command
from mudd_core.run.store.resumed_config import resumed_config
from places import ROOT
from tiny_run import TinyRun

CONSTANT = ("optim.schedule=constant", "optim.warmup_steps=4")
WSD = ("optim.schedule=wsd", "optim.warmup_steps=2", "optim.decay_steps=6")


@pytest.mark.parametrize(("words", "stop"), [(CONSTANT, 20), (CONSTANT, 7), (WSD, 13)])
def test_an_extended_run_ends_as_one_that_was_as_long_from_the_start(
    tmp_path: Path, words: tuple[str, ...], stop: int
) -> None:
    whole = unbroken(tmp_path / "whole", *words, "train.steps=30")
    with make(tmp_path / "parts", FakeEngine(), *words, f"train.stop_at={stop}") as trainer:
        trainer.fit()
    longer = (*words, "train.steps=30", "train.extend=true")
    for _ in range(2):  # the second time the run is finished
        with make(tmp_path / "parts", FakeEngine(), *longer) as trainer:
            assert trainer.fit().final_hash == whole
    rows = [row for row in rows_of(tmp_path / "parts") if "val_loss" not in row]
    assert rows == [row for row in rows_of(tmp_path / "whole") if "val_loss" not in row]


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        (("optim.schedule=cosine", "optim.warmup_steps=0"), 20),
        (("optim.schedule=linear", "optim.warmup_steps=0"), 3),
        (WSD, 16),
    ],
)
def test_a_schedule_that_would_change_the_past_is_refused(
    tmp_path: Path, words: tuple[str, ...], stop: int
) -> None:
    with make(tmp_path, FakeEngine(), *words, f"train.stop_at={stop}") as trainer:
        trainer.fit()
    with pytest.raises(UserError, match=r"train\.extend: expected a schedule"):
        make(tmp_path, FakeEngine(), *words, "train.steps=30", "train.extend=true")
    with pytest.raises(UserError, match=r"train\.steps: saved 20, asked 30"):
        make(tmp_path, FakeEngine(), *words, "train.steps=30")


def test_fewer_steps_are_no_extension(tmp_path: Path) -> None:
    unbroken(tmp_path, *CONSTANT)
    with pytest.raises(UserError, match=r"train\.steps: saved 20, asked 10"):
        make(tmp_path, FakeEngine(), *CONSTANT, "train.steps=10", "train.extend=true")


def test_fields_newer_than_a_run_keep_its_hash_and_may_be_absent() -> None:
    config = load_config("tiny.py")
    for word in ("train.rewind=5", "train.extend=true"):
        assert config_hash(load_config("tiny.py", [word])) == config_hash(config)
    assert config_hash(load_config("tiny.py", ["train.spike=off"])) == config_hash(config)
    assert config_hash(load_config("tiny.py", ["train.spike=skip"])) != config_hash(config)


def test_a_run_that_is_older_than_these_fields_resumes(tmp_path: Path) -> None:
    whole = unbroken(tmp_path / "whole")
    with make(tmp_path / "old", FakeEngine(), "train.stop_at=7") as trainer:
        trainer.fit()
    file = tmp_path / "old" / "config.json"
    saved = json.loads(file.read_text())
    for name in ("rewind", "spike", "extend"):
        del saved["train"][name]
    file.write_text(json.dumps(saved))
    folder = tmp_path / "old" / "checkpoints" / "step-7"
    found = manifest_reader.read_manifest(folder)
    new = ("rewinds", "anchor", "spike_losses", "spike_norms")
    state = {name: value for name, value in found.state.items() if name not in new}
    (folder / "manifest.json").write_bytes(manifest.encode(dataclasses.replace(found, state=state)))
    with make(tmp_path / "old", FakeEngine()) as trainer:
        assert trainer.fit().final_hash == whole


def refused(workdir: str, saved: Config, *words: str) -> list[str]:
    """Return the lines of the error if a run of 100 steps is started again with these arguments."""
    asked = load_config("tiny.py", words)
    with pytest.raises(OtherConfigError) as caught:
        resumed_config(saved, asked, 100)
    program = ["python3", "launch.py"]
    error = refused_command(caught.value, workdir, saved, asked, 100, program, "THE NEW RUN")
    return str(error).splitlines()


def test_the_refusal_names_the_command() -> None:
    saved = load_config("tiny.py", ["train.steps=100"])
    lines = refused("runs/a b", saved, "train.steps=250")
    assert lines[0].startswith(
        "[resume] runs/a b contains a run with another config. To train 150 more updates"
    )
    assert shlex.split(lines[1]) == [
        "python3",
        "launch.py",
        "--config=runs/a b/config.json",
        "--workdir=runs/a b-to-250",
        "train.steps=150",
        "train.seed=1",
        "start.load_parameters_path=runs/a b",
        "start.keep_optimizer=true",
    ]
    assert lines[2:] == ["These fields differ:", "  train.steps: saved 100, asked 250"]
    constant = load_config("tiny.py", ["train.steps=100", "optim.schedule=constant"])
    lines = refused("r", constant, "train.steps=250", "optim.schedule=constant")
    assert lines[3] == "  python3 launch.py --workdir=r train.steps=250 train.extend=true"
    lines = refused("r", saved, "train.steps=250", "train.extend=true")
    assert "start.keep_optimizer=true" in lines[1] and lines[-1].startswith(
        "train.extend: expected a schedule"
    )
    assert refused("a b", saved, "train.steps=250", "train.seed=7")[:4] == [
        "[resume] a b contains a run with another config. To start a new run:",
        "  THE NEW RUN",
        "To resume it as it was:",
        "  python3 launch.py '--workdir=a b'",
    ]


def test_another_seed_orders_the_batches_of_the_new_run() -> None:
    line = refused(
        "r", load_config("tiny.py", ["train.steps=100", "data.seed=7"]), "train.steps=250", "data.seed=7"
    )[1]
    assert "data.seed=8" in line and "data.seed=7" not in line and "train.seed" not in line


def test_the_printed_command_trains_longer(tiny_text: Path, memory_path: Path) -> None:
    words = ("train.steps=5", "train.eval_every=0", "train.save_every=0")
    run = TinyRun(memory_path / "run", tiny_text, words).finished()
    assert "resume" not in run.output.split("done:")[1]
    run.words = (*words, "train.steps=9")
    assert run.finish() == 2
    (printed,) = [line for line in run.output.splitlines() if "start.load_parameters_path=" in line]
    arguments = shlex.split(printed)
    (folder,) = [word.partition("=")[2] for word in arguments if word.startswith("--workdir=")]
    more = TinyRun(Path(folder), tiny_text, tuple(arguments[arguments.index(f"--workdir={folder}") + 1 :]))
    more.words = (*words, *more.words)
    more.finished()
    assert more.summary()["step"] == 4 and "with the state of the optimizer" in more.output


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_a_finished_run_prints_the_command_that_trains_it_longer(
    schedule: str, tiny_text: Path, memory_path: Path
) -> None:
    words = (
        "train.steps=3",
        "train.eval_every=0",
        "train.save_every=0",
        f"optim.schedule={schedule}",
        "optim.warmup_steps=0",
    )
    run = TinyRun(memory_path / "run", tiny_text, words).finished()
    first = run.summary()["final_hash"]
    assert first not in run.output
    run.finished()
    said, command = run.output.splitlines()[:2]
    assert said == f"{run.workdir} is finished. To train 3 more steps:"
    arguments = arguments_of(command)
    done = launched(memory_path, *arguments)
    assert done.returncode == 0, done.stderr
    (folder,) = [word.partition("=")[2] for word in arguments if word.startswith("--workdir=")]
    longer = TinyRun(Path(folder), tiny_text).summary()
    assert longer["final_hash"] != first
    assert (folder, longer["step"]) == (
        (str(run.workdir), 6) if schedule == "constant" else (f"{run.workdir}-to-6", 3)
    )


def test_a_run_of_epochs_trains_longer_by_the_printed_command(tiny_text: Path, memory_path: Path) -> None:
    words = ("train.batch_size=256", "train.eval_every=0", "train.save_every=0", "optim.schedule=constant")
    run = TinyRun(
        memory_path / "run", tiny_text, (*words, "train.epochs=1", "optim.warmup_steps=0")
    ).finished()
    run.finished()
    command = run.output.splitlines()[1]
    done = launched(memory_path, *arguments_of(command), "train.steps=2")
    assert done.returncode == 0, done.stderr
    (folder,) = [word.partition("=")[2] for word in arguments_of(command) if word.startswith("--workdir=")]
    assert folder != str(run.workdir) and TinyRun(Path(folder), tiny_text).summary()["step"] == 2
    refused = launched(memory_path, f"--workdir={run.workdir}", "train.steps=9999", "train.extend=true")
    assert refused.returncode == 2 and "train.extend: expected train.epochs=0" in refused.stderr
    (line,) = [line for line in refused.stderr.splitlines() if "start.load_parameters_path=" in line]
    assert "train.epochs=0" in line
    call = f"import mudd_core as mc; mc.Trainer({str(run.workdir)!r}).fit()"
    said = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True).stderr
    assert "'train.epochs': 0" in said and "train.extend" not in said


def test_a_new_run_goes_on_at_the_step_of_another_with_its_bits(tmp_path: Path, tiny_text: Path) -> None:
    whole = TinyRun(tmp_path / "whole", tiny_text, ("train.steps=16",))
    whole.finished()
    part = TinyRun(tmp_path / "part", tiny_text, ("train.steps=16", "train.stop_at=7"))
    part.stopped()
    words = (
        f"start.load_parameters_path={part.workdir}",
        "start.keep_optimizer=true",
        "start.keep_step=true",
    )
    new = TinyRun(tmp_path / "new", tiny_text, (*words, "train.steps=16"))
    new.finished()
    assert "continued from step 7" in new.output
    assert new.summary()["final_hash"] == whole.summary()["final_hash"]
    assert all(row["step"] > 7 for row in new.rows())
    short = TinyRun(tmp_path / "short", tiny_text, (*words, "train.steps=5"))
    assert short.finish() == 2
    assert "is after the last step of this run, train.steps=5" in short.output
    alone = TinyRun(tmp_path / "alone", tiny_text, (words[0], words[2]))
    assert alone.finish() == 2
    assert "start.keep_step: expected start.keep_optimizer=true" in alone.output


def test_the_advice_of_a_refused_resume_works_when_it_is_typed(tiny_text: Path, memory_path: Path) -> None:
    run = TinyRun(
        memory_path / "a run", tiny_text, ("train.steps=4", "train.eval_every=0", "train.stop_at=2")
    )
    run.stopped()
    run.words = ("train.steps=9", "train.eval_every=0", "train.seed=5")
    assert run.finish() == 2
    lines = run.output.splitlines()
    assert "start.load_parameters_path" not in run.output
    printed = lines[lines.index("To resume it as it was:") + 1]
    done = subprocess.run(
        ["sh", "-c", f"{printed} train.stop_at=0"],
        cwd=memory_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert run.summary()["step"] == 4


def test_an_order_of_all_epochs_is_not_extended() -> None:
    saved = Config(data=DataConfig(epochs=1), train=TrainConfig(to_data_end=True))
    asked = replace_path(saved, "data.epochs", 2)
    assert resumed_config(saved, asked, 9)[0].data.epochs == 2
    with pytest.raises(UserError, match=r"data\.epochs: saved 1, asked 2"):
        resumed_config(*(replace_path(one, "data.pipeline", "megatron") for one in (saved, asked)), 9)


SHIPPED = """
from mudd_core.config import Config, DataConfig, EvalConfig, TrainConfig, TransformerPPConfig
def get_config():
    return Config(
        name="mini",
        model=TransformerPPConfig(d_model=16, n_layer=1, n_head=1, d_ff=16),
        data=DataConfig(tokenizer="bytes"),
        train=TrainConfig(steps=6, seq_len=16, batch_size=2, log_every=%d),
        eval=EvalConfig(max_batches=%d),
    )
"""


def test_a_run_keeps_its_values_when_an_update_changes_a_shipped_config(
    tiny_text: Path, memory_path: Path
) -> None:
    shutil.copy(ROOT / "launch.py", memory_path)
    file = memory_path / "configs" / "mini.py"
    file.parent.mkdir()
    words = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]

    def train(*more: str) -> dict[str, Any]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(memory_path / "launch.py"), "--config=mini.py", *words, *more]
        done = subprocess.run(
            command, cwd=memory_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 75), done.stderr
        found: dict[str, Any] = json.loads((memory_path / "runs" / "mini" / "config.json").read_text())
        return found

    file.write_text(SHIPPED % (2, 3))
    assert train("train.stop_at=2")["eval"]["max_batches"] == 3
    file.write_text(SHIPPED % (5, 1))
    saved = train("train.stop_at=4", "--log-every=1")
    assert (saved["eval"]["max_batches"], saved["train"]["log_every"]) == (3, 1)  # the typed one is new
    assert train("train.stop_at=0", "eval.max_batches=2")["eval"]["max_batches"] == 2


def test_a_longer_run_in_a_new_folder_has_no_more_phases_or_averaged_updates_than_it_needs() -> None:
    phases = OptimConfig(schedule="phases", phases="linear:4:0:1, sqrt:rest:1:0", warmup_steps=0)
    saved = Config(train=TrainConfig(steps=9, average="last:5"), optim=phases)
    fields = fields_in_new_folder("runs/a", saved, 4)
    assert (fields["train.average"], fields["optim.phases"]) == ("last:4", "sqrt:rest:1:0")
    assert not {"train.average", "optim.phases"} & fields_in_new_folder("runs/a", saved, 5).keys()
