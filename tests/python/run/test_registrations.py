"""Readers and schemes that a config file registers: a resume and commands that read the run have them too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.run.store.config_source import registrations, require_registered
from places import ROOT

LAUNCH = ROOT / "launch.py"
FILE = """
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
import mudd_core as mc
from mudd_core.config import Config, DataConfig, GPT2Config, TrainConfig

def notes(path):
    with open(path) as file:
        yield from file.read().split("\\n\\n")

class Held(MemoryFileSystem):
    protocol = "held"

mc.data.register("notes", notes)
fsspec.register_implementation("held", Held)

def get_config():
    with open("ran", "a") as file:
        file.write("x")
    return Config(
        name="mine",
        model=GPT2Config(d_model=16, n_layer=1, n_head=2, d_ff=32),
        data=DataConfig(pipeline="notes", path="notes.txt", tokenizer="bytes", cache_dir="cache"),
        train=TrainConfig(
            steps=2, batch_size=2, seq_len=16, eval_every=2, save_every=1, logical_shards=2, threads=1
        ),
    )
"""


def command(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(LAUNCH), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def test_a_run_with_a_registered_reader_is_resumed_and_read_by_fresh_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "notes.txt").write_text("\n\n".join(f"note {i}: " + "the cat sat " * 4 for i in range(300)))
    start = ("--config=mine.py", "--workdir=run")
    command(tmp_path, *start)
    # As if the run had been stopped after one step.
    for entry in (tmp_path / "run" / "checkpoints").iterdir():
        if entry.name.endswith("2"):
            entry.rename(tmp_path / "later")
    (tmp_path / "run" / "summary.json").unlink()
    again = command(tmp_path, *start)
    assert "done: 2 steps" in again
    told = command(tmp_path, "validate", "--workdir=run", code=2)
    assert f"needs the code that {tmp_path / 'mine.py'} registers (reader notes, scheme held)" in told
    assert f"add --config={tmp_path / 'mine.py'}" in told
    monkeypatch.chdir(tmp_path)  # in this process nothing is registered for the next commands either
    assert main(["validate", *start]) == 0
    assert main(["sample", *start, "--prompt=note 1", "sample.max_tokens=3"]) == 0
    assert main(["report", "--workdir=run"]) == 0


@pytest.mark.parametrize(
    ("name", "reader", "error", "says"),
    [
        (3, list, ValueError, "expected a name such as my_reader, got 3"),
        ("my reader", list, ValueError, "expected a name such as my_reader, got 'my reader'"),
        ("pack", list, ValueError, "expected a new name, got 'pack'"),
        ("mine", 3, TypeError, "expected a function of data.path as reader, got int"),
    ],
)
def test_what_cannot_be_a_reader_is_refused(
    name: Any, reader: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        mc.data.register(name, reader)


def test_schemes_that_fsspec_ships_are_not_registrations() -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    before = registrations()
    fsspec.get_filesystem_class("memory")
    assert registrations() == before
    fsspec.register_implementation("of_this_test", MemoryFileSystem)
    assert registrations() - before == {"scheme of_this_test"}
    require_registered(["scheme of_this_test"], "mine.py")
    with pytest.raises(
        UserError, match=r"needs the code that my file\.py registers \(reader r\).*--config='my file\.py'"
    ):
        require_registered(["reader r", "scheme of_this_test"], "my file.py")
