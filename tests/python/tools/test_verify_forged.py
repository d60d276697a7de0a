"""`verify --train` names each forged value that it derives, and names the ones that it cannot derive as not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import provenance_cases
from mudd_core.base.types import JsonObject
from provenance_cases import WORDS, copied, edit, exported, verified
from tiny_run import TinyRun

run, folder, copy = provenance_cases.run, provenance_cases.folder, provenance_cases.copy

Capsys = pytest.CaptureFixture[str]
NOT_SHOWN = "that the hashes of its code, its commands and its run id are true"


@pytest.fixture
def words(run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return ["--train", f"--data={run.text}", f"data.cache_dir={run.text.parent / 'cache'}"]


@pytest.mark.parametrize(("section", "name"), [("tokenizer", "sha256"), ("data", "ids")])
def test_a_forged_hash_that_is_derived_is_named(
    section: str, name: str, copy: Path, words: list[str], capsys: Capsys
) -> None:
    edit(copy, lambda predicate: predicate[section].update({name: "0" * 64}), forged=True)
    assert verified(capsys, copy)[0] == 0
    code, out, err = verified(capsys, copy, *words)
    assert code == 1 and f"differs: {section}.{name}: derived again, it is " in out, out + err
    assert f"the statement says {'0' * 64}" in out
    assert f"that this training gives these weights; {NOT_SHOWN}" in out


def test_forged_values_that_cannot_be_derived_are_named_as_not_shown(
    copy: Path, words: list[str], capsys: Capsys
) -> None:
    def change(predicate: JsonObject) -> None:
        code, trained = predicate["code"], predicate["run"]
        assert isinstance(code, dict) and isinstance(trained, dict)
        code.update(dict.fromkeys(("modules", "python", "cpp", "commit"), "0" * 40))
        trained["id"] = "0" * 32
        assert isinstance(trained["starts"], list)
        for start in trained["starts"]:
            assert isinstance(start, dict)
            start["command"] = ["train.steps=9"]

    edit(copy, change, forged=True)
    code, out, err = verified(capsys, copy, *words)
    assert code == 0 and NOT_SHOWN in out, out + err


def test_another_run_is_refused_by_its_id(
    run: TinyRun, copy: Path, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    other = copied(run.workdir, tmp_path / "other")
    facts = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**facts, "run_id": "1" * 32}))
    code, _, err = verified(capsys, copy, *words, f"--run={other}")
    assert code == 2 and f"whose id is {facts['run_id']}, got '{other}' with the id {'1' * 32}" in err


def test_no_command_names_the_temporary_folder(
    run: TinyRun, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    logged = TinyRun(tmp_path / "logged", run.text, (*WORDS, "log.batches=true")).trained()
    to = exported(logged, tmp_path / "out")
    edit(to, lambda predicate: predicate["config"]["values"].update({"train.seed": 7}), forged=True)
    words = [*words, f"--run={logged.workdir}"]
    code, out, err = verified(capsys, to, *words, f"--workdir={tmp_path / 'kept'}")
    assert code == 1 and f"--workdir={tmp_path / 'kept' / 'run'}" in out, out + err
    code, out, err = verified(capsys, to, *words)
    assert code == 1 and "--workdir=" in out and "mudd-verify-" not in out.split("--workdir=", 1)[1], (
        out + err
    )


@pytest.mark.parametrize(("section", "name"), [("run", "finalHash"), ("data", "seal")])
def test_all_digits_are_printed_if_the_first_16_are_equal(
    section: str, name: str, copy: Path, words: list[str], capsys: Capsys
) -> None:
    known = json.loads((copy / "provenance.json").read_text())["predicate"][section][name]
    other = known[:-1] + ("1" if known[-1] == "0" else "0")
    edit(copy, lambda predicate: predicate[section].update({name: other}), forged=True)
    code, out, _ = verified(capsys, copy, *words)
    assert code == 1 and f"{known}, the statement says {other}" in out, out
