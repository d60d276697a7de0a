"""The commands of mu-Transformer's document on a text of ours, run to their end.

The third, with a data set and a tokenizer of its own, is run in test_grammar_mu_transformer.py.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import documents
from document_sizes import OF_MU_TRANSFORMER, with_keys
from mudd_core.cli import main

COMMANDS = [command.words for command in documents.commands("mu_transformer")]
ON_TEXT = (0, 1, 3)


class Tracker:
    """A run of wandb that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}

    def log(self, values: dict[str, Any], step: int) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        pass


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    run, module = Tracker(), types.ModuleType("wandb")
    module.init, module.Settings = lambda **arguments: run, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_MODE", "offline")
    return run


@pytest.mark.parametrize("number", ON_TEXT)
def test_a_command_trains_to_its_end(
    number: int, tiny_text: Path, tmp_path: Path, tracker: Tracker, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f"data.path={tiny_text} data.tokenizer=bytes data.cache_dir={tiny_text.parent / 'cache'}"
    sizes = " ".join(f"--config.{word}" for word in OF_MU_TRANSFORMER.split())
    words = with_keys(COMMANDS[number], f"{sizes} {data} --workdir={tmp_path / 'w'} train.threads=1")
    assert main(words) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    (run,) = (tmp_path / "w").iterdir()
    assert "d_model: 16\n" in told and "{'step': 2, 'sec_per_step': " in told
    assert "{'step': 2, 'sec_per_step': " in (run / "log.txt").read_text()
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    assert (run / "checkpoints" / "step-4").is_dir() and (run / "tensorboard").is_dir()
    assert bool(tracker.rows) == (number == 3)


def test_every_command_is_run_somewhere() -> None:
    assert {*ON_TEXT, 2} == set(range(len(COMMANDS)))  # the third has its own data set and tokenizer
