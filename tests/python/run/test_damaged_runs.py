"""Files of a run with wrong but valid JSON: a FormatError (65) names the file and key; never a traceback (70)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_runs import config_of, make
from mudd_core import checkpoint
from mudd_core.base.errors import FormatError
from mudd_core.base.members import build
from mudd_core.checkpoint import load_weights, manifest, manifest_reader, whole_parts
from mudd_core.config import check_config
from mudd_core.run.records.events import Summary, Validation
from mudd_core.run.store import config_source
from mudd_core.run.store.fetch import remember
from mudd_core.run.store.json_files import finished_summary, read_facts, read_object, read_saved_config
from mudd_core.run.store.metrics import read_rows
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.tools.mup_checks.transfer import run_once

DEEP = "[" * 200_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that was stopped after a validation, and of a finished run."""
    folder = tmp_path_factory.mktemp("runs")
    with make(folder / "stopped", None, "train.stop_at=9", "train.save_every=8") as trainer:
        trainer.fit()
    shutil.rmtree(
        folder / "stopped" / "checkpoints" / "step-9"
    )  # as if killed after the validation of step 8
    with make(folder / "finished") as trainer:
        trainer.fit()
    return folder


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "stopped", tmp_path / "run"))


def change(file: Path, **members: Any) -> None:
    """Set keys of a JSON object; `...` removes a key."""
    raw = json.loads(file.read_text())
    raw.update(members)
    file.write_text(json.dumps({name: value for name, value in raw.items() if value is not ...}))


def resume_fails(path: Path, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        make(path)


def test_deeply_nested_files(stopped: Path) -> None:
    for name in ("run.json", "summary.json", "config.json"):
        (stopped / name).write_text(DEEP)
        with pytest.raises(FormatError, match=f"{name} at byte 0: not JSON"):
            read_object(stopped / name)
    index = stopped / "model.safetensors.index.json"
    index.write_text('{"weight_map": ' + DEEP)
    with pytest.raises(FormatError, match="not an index of safetensors files"):
        load_weights(stopped)


def test_members_of_run_json(stopped: Path) -> None:
    for wrong in (..., None, 3, [], {}):
        change(stopped / "run.json", run_id=wrong)
        resume_fails(stopped, "run.json at byte 0: key 'run_id'")
    change(stopped / "run.json", run_id="another")
    resume_fails(stopped, "this is run another")
    for wrong in (3, [], {}):
        change(stopped / "run.json", data=wrong)
        resume_fails(stopped, "run.json at byte 0: key 'data': expected a string")
    (stopped / "run.json").write_text("[]")
    resume_fails(stopped, "expected a JSON object")


def test_members_of_a_summary(runs: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(runs / "finished", tmp_path / "run"))
    file = path / "summary.json"
    good = read_object(file)
    for field in dataclasses.fields(Summary):
        for wrong in ("yes" if field.type == "bool" else True, [], {}, 10**400, ...):
            if wrong == [] and "tuple" in str(field.type):
                wrong = [3]  # an empty list is a valid empty tuple
            raw = {name: value for name, value in {**good, field.name: wrong}.items() if value is not ...}
            if wrong is ... and field.default is not dataclasses.MISSING:
                assert build(Summary, raw, file) is not None
                continue
            with pytest.raises(FormatError, match=f"summary.json at byte 0: .*key '{field.name}'"):
                build(Summary, raw, file)
    store = RunStore(RunFolder(path))
    store.adopt(config_of())
    assert store.summary() == build(Summary, good, file)
    change(file, tokens="many")
    with pytest.raises(FormatError, match="key 'tokens': expected a whole number, got 'many'"):
        store.summary()
    change(file, step=3)
    assert store.summary() is None  # there are steps left to train
    store.close()


def test_the_validation_row_at_the_resumed_step(stopped: Path) -> None:
    log = stopped / "metrics.jsonl"
    rows = list(read_rows(log))
    (last,) = [row for row in rows if row["step"] == 8 and "val_loss" in row]
    for field in dataclasses.fields(Validation):
        name = field.name
        for wrong in (..., "x", [], True):
            if name in ("step", "by_source"):  # the losses of sources have columns of their own
                continue
            if wrong is ... and (name == "val_loss" or field.default is not dataclasses.MISSING):
                continue  # a log entry of a training step, or of an earlier version
            row = {key: value for key, value in {**last, name: wrong}.items() if value is not ...}
            others = [each for each in rows if each is not last]
            log.write_text("".join(json.dumps(each) + "\n" for each in [*others, row]))
            resume_fails(stopped, f"metrics.jsonl at byte 0: validation of step 8: key '{name}'")
    row = {
        **last,
        "val_loss": None,
        "more": 1,
    }  # a value that is not finite is null; a later version may add keys
    del row["val_accuracy"]  # an earlier version has fewer keys
    log.write_text(json.dumps(row) + "\n")
    with make(stopped) as trainer:
        assert trainer.step_done == 8
    log.write_text('{"step": 8, "loss": 1' + "0" * 400 + "}\n" + json.dumps(last) + "\n")
    resume_fails(stopped, "line 1 is damaged: a number of 401 digits")


def seal(path: Path, state: dict[str, Any]) -> None:
    """Change the state in the newest checkpoint, and update all checksums."""
    folder = path / "checkpoints" / "step-8"
    found = manifest_reader.read_manifest(folder)
    (folder / "manifest.json").write_bytes(manifest.encode(dataclasses.replace(found, state=state)))


def test_a_sealed_state_that_no_run_saves(stopped: Path) -> None:
    good = manifest_reader.read_manifest(stopped / "checkpoints" / "step-8").state
    for name in good:
        if name in ("step", "skipped_steps", "skips_in_row", "last_loss", "seconds"):  # since format 1.0
            seal(stopped, {key: value for key, value in good.items() if key != name})
            resume_fails(stopped, f"manifest.json at byte 0: state: .*{name}")
        for wrong in ("x", {}, {"a": 1}):
            seal(stopped, {**good, name: wrong})
            resume_fails(stopped, f"manifest.json at byte 0: state: .*{name}")
    seal(stopped, {**good, "step": 7})
    resume_fails(stopped, "state: it is of step 7, the checkpoint of 8")
    seal(stopped, {**good, "skipped_steps": ["1"]})
    resume_fails(stopped, "an entry of key 'skipped_steps': expected a whole number, got '1'")
    seal(stopped, {**good, "rewinds": [{"from_step": 1}]})
    resume_fails(stopped, "state: rewinds: key 'to_step' is missing")
    seal(stopped, {**good, "spike_losses": [1.0, "x"]})
    resume_fails(stopped, "an entry of key 'spike_losses': expected a number")
    seal(stopped, good)
    with make(stopped) as trainer:
        assert trainer.step_done == 8


@pytest.mark.parametrize("shape", [None, (3,)])
def test_sealed_tensors_of_another_model(stopped: Path, shape: tuple[int, ...] | None) -> None:
    found = checkpoint.load_newest(stopped / "checkpoints")
    assert found is not None
    shutil.rmtree(found.path)
    tensors = {name: array for name, array in found.tensors.items() if name != "w"}
    if shape:
        tensors["w"] = np.zeros(shape, np.float32)
    named = {"config_hash": found.config_hash, "run_id": found.run_id}
    checkpoint.save(stopped / "checkpoints", 8, whole_parts(tensors), found.state, **named)
    resume_fails(stopped, "'w'")


def test_null_is_a_number_that_is_not_finite(tmp_path: Path) -> None:
    raw = {"step": 1, "val_loss": None, "val_bits_per_byte": 2, "targets": 3, "seconds": 0.5}
    found = build(Validation, raw, tmp_path)
    assert np.isnan(found.val_loss) and found.val_bits_per_byte == 2.0


def test_words_that_are_none_tell_of_no_source() -> None:
    for words in (3, {"a": 1}, [1], None):
        assert config_source.of_facts({"config_source": {"files": {}, "words": words}}) is None


def test_a_damaged_result_of_a_scaling_run(tmp_path: Path) -> None:
    for text in ("", "abc", "abc def", "a b c"):
        (tmp_path / "done.txt").write_text(text)
        with pytest.raises(FormatError, match=r"done\.txt at byte 0: expected a config's hash and a loss"):
            run_once(config_of(), tmp_path)


SHAPES = [
    "[]",
    "{}",
    "null",
    '"x"',
    "3",
    "1e999",
    "[" * 200_000,
    "1" + "0" * 5000,
    "",
    "{",
    '{"a": 1} x',
    "\x00",
]
WRONG = [[], {}, None, "x", True, -1, 1.5, 10**400, [[[]]]]


READERS: dict[str, Callable[[Path], object]] = {
    "config.json": lambda run: check_config(read_saved_config(RunFolder(run))),
    "run.json": lambda run: config_source.of_facts(read_facts(RunFolder(run))),
    "summary.json": lambda run: finished_summary(RunFolder(run), config_of()),
    "remote.json": lambda run: remember(RunFolder(run, "memory://b/run")),
}


def no_internal_error(read: Callable[[Path], object], path: Path, message: str) -> None:
    """Check that the call works, or that its exit code is for bad input or damage."""
    try:
        read(path)
    except Exception as error:
        code = getattr(error, "exit_code", 70)
        assert code in (2, 65), f"{message}: {type(error).__name__}: {error}"


@pytest.mark.parametrize("name", READERS)
def test_no_shape_of_a_json_file_is_an_internal_error(stopped: Path, name: str) -> None:
    file = stopped / name
    (stopped / "remote.json").write_text('{"url": "memory://b/run"}')
    members = json.loads(file.read_text())
    inner = [
        f"{outer}.{name}" for outer, value in members.items() if isinstance(value, dict) for name in value
    ]
    for number, path in enumerate([*members, *inner]):
        outer, _, field = path.partition(".")
        for wrong in (WRONG[number % len(WRONG)],) if field else WRONG:
            changed = {**members, outer: {**members[outer], field: wrong} if field else wrong}
            file.write_text(json.dumps(changed))
            no_internal_error(READERS[name], stopped, f"{name}: {path} of {str(wrong)[:20]}")
    for text in SHAPES:
        file.write_text(text)
        no_internal_error(READERS[name], stopped, f"{name} of {text[:20]}")
        no_internal_error(lambda path: make(path).close(), stopped, f"{name} of {text[:20]}")


@pytest.mark.parametrize("text", ["[]", "{}", '{"url": 3}', "null", "[" * 200_000])
def test_members_of_remote_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "remote.json").write_text(text)
    with pytest.raises(
        FormatError, match=r"remote\.json at byte 0: (key 'url'|expected a JSON object|not JSON)"
    ):
        remember(RunFolder(tmp_path, "memory://b/run"))


def test_members_of_a_saved_config(stopped: Path) -> None:
    good = json.loads((stopped / "config.json").read_text())
    for path, wrong, expected in (
        ("train.steps", "x", "a whole number"),
        ("train.steps", 10**400, "at most 64 bits"),
        ("optim.lr", [], "a number"),
        ("data.path", None, "a string"),
    ):
        section, _, field = path.partition(".")
        changed = {**good, section: {**good[section], field: wrong}}
        (stopped / "config.json").write_text(json.dumps(changed))
        with pytest.raises(FormatError, match=rf"config\.json at byte 0: key {path}: expected .*{expected}"):
            read_saved_config(RunFolder(stopped))
    (stopped / "config.json").write_text("{}")
    resume_fails(stopped, r"config\.json at byte 0: key 'model' is missing")
