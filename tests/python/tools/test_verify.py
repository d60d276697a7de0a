"""`export` writes provenance.json, and `verify` finds each of eight tamperings and names it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

import mudd_core as mc
import provenance_cases
from mudd_core.cli import main
from mudd_core.provenance import statement as statements
from provenance_cases import WORDS, copied, edit, exported, section_hash, verified
from tiny_run import TinyRun

run, folder, copy = provenance_cases.run, provenance_cases.folder, provenance_cases.copy


def content(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "provenance.json").read_text())
    return found


def test_the_statement_has_the_form_of_in_toto_and_the_facts_of_the_run(run: TinyRun, folder: Path) -> None:
    raw = content(folder)
    parsed = json_format.ParseDict(raw, statement_pb2.Statement())  # refuses unknown fields
    Statement.copy_from_pb(parsed).validate()
    assert raw["_type"] == "https://in-toto.io/Statement/v1" == parsed.type
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert raw["subject"] == [{"name": "model.safetensors", "digest": {"sha256": weights}}]
    predicate, facts = raw["predicate"], json.loads((run.workdir / "run.json").read_text())
    assert predicate["run"]["finalHash"] == run.summary()["final_hash"]
    assert predicate["data"]["seal"] == facts["data_seal"] and len(predicate["data"]["documents"]) == 64
    assert predicate["config"]["values"]["train.steps"] == 6
    assert predicate["run"]["losses"] == {
        "step": [1, 2, 3, 4, 5, 6],
        "loss": [row["loss"] for row in run.rows() if "loss" in row],
    }
    (start,) = predicate["run"]["starts"]
    assert start["command"][-len(WORDS) :] == list(WORDS) and start["version"] == mc.__version__
    assert not any(word.startswith("/") or "=/" in word for word in start["command"])
    assert predicate["code"]["version"] == mc.__version__ and len(predicate["code"]["modules"]) == 64
    assert predicate["code"]["compiler"].startswith(("GCC", "clang")) and len(predicate["code"]["cpp"]) == 64
    assert {one["name"] for one in predicate["files"]} == {
        path.name
        for path in folder.iterdir()
        if path.name not in ("model.safetensors", "provenance.json", "README.md")
    }
    assert predicate["sections"] == {name: section_hash(predicate[name]) for name in statements.SECTIONS}


def test_the_same_run_exported_twice_gives_the_same_statement(
    run: TinyRun, folder: Path, tmp_path: Path
) -> None:
    again = exported(run, tmp_path / "again")
    assert (again / "provenance.json").read_bytes() == (folder / "provenance.json").read_bytes()
    card = (again / "README.md").read_text().splitlines()
    assert hashlib.sha256((again / "provenance.json").read_bytes()).hexdigest() in card[-2]
    assert "launch.py verify" in card[-1]


def test_a_run_of_python_says_that_it_has_no_command(run: TinyRun, tmp_path: Path) -> None:
    events = run.workdir / "events.jsonl"
    earlier = copied(run.workdir, tmp_path / "earlier")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name != "command"} for line in lines]
    (earlier / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    exported(TinyRun(earlier, run.text), tmp_path / "out")
    predicate = content(tmp_path / "out")["predicate"]
    assert "command" not in predicate["run"]["starts"][0]
    assert any("1 of 1 starts have no command" in text for text in predicate["missing"])


def test_equal_files_and_data_and_tokenizer(
    run: TinyRun, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = verified(capsys, folder)
    assert code == 0 and "1 weight file and 4 other files match the statement" in out
    assert "\nnot shown: the data (--data=PATH); " in out and out.count("\n") == 2
    code, out, _ = verified(capsys, folder, f"--data={run.text}")
    assert code == 0 and "the documents of the data have the SHA-256 of the statement" in out
    assert "--data" not in out


@pytest.mark.parametrize("form", ["--system=own", "--shard-mb=0"])
def test_other_forms_have_a_statement_too(
    run: TinyRun, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to = exported(run, tmp_path / "out", form)
    assert verified(capsys, to)[0] == 0
    name = next(one["name"] for one in content(to)["subject"])
    (to / name).write_bytes((to / name).read_bytes()[:-1] + b"!")
    code, out, _ = verified(capsys, to)
    assert code == 1 and f"differs: {name}: expected SHA-256" in out


def changed_config(predicate: dict[str, Any]) -> None:
    predicate["config"]["values"]["optim.lr"] = 0.1


def changed_code(predicate: dict[str, Any]) -> None:
    predicate["code"]["version"] = "9.9.9"


def changed_base(predicate: dict[str, Any]) -> None:
    predicate["base"] = {"name": "base", "sha256": "0" * 64}


def changed_run(predicate: dict[str, Any]) -> None:
    predicate["run"]["finalHash"] = "0" * 64


EDITS = {"config": changed_config, "code": changed_code, "base": changed_base, "run": changed_run}


def test_json_is_refused_with_the_file_that_is_json(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = verified(capsys, copy, "--json")
    assert (code, out) == (2, "") and "provenance.json in the export is JSON; leave --json out" in err


@pytest.mark.parametrize("section", EDITS)
def test_an_edited_section_is_named(copy: Path, section: str, capsys: pytest.CaptureFixture[str]) -> None:
    edit(copy, EDITS[section])
    code, out, _ = verified(capsys, copy)
    assert code == 1 and f"differs: provenance.json: its section '{section}' was edited" in out
    assert "README.md quotes a statement of SHA-256" in out


def test_changed_weights_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-9] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    code, out, _ = verified(capsys, copy)
    assert code == 1 and "differs: model.safetensors: expected SHA-256" in out
    assert ": 4 of 5 files match the statement" in out


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_changed_setting_or_tokenizer_is_named(
    copy: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / name).write_text((copy / name).read_text().replace("1", "2", 1))
    code, out, _ = verified(capsys, copy)
    assert code == 1 and f"differs: {name}: expected SHA-256" in out
    (copy / name).unlink()
    code, out, _ = verified(capsys, copy)
    assert code == 1 and f"differs: {name}: the file is missing" in out


def test_changed_data_are_named(
    run: TinyRun, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = copied(run.text, tmp_path / "data")
    (data / "07.txt").write_text((data / "07.txt").read_text().replace("a", "e", 1))
    code, out, _ = verified(capsys, folder, f"--data={data}")
    assert code == 1 and f"differs: data: the documents of {data}: expected SHA-256" in out


def test_another_tokenizer_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    code, out, _ = verified(capsys, folder, f"--tokenizer={tmp_path}")
    assert code == 1 and f"differs: tokenizer: {tmp_path}/tokenizer.json: expected SHA-256" in out


def test_another_runs_statement_is_named(
    run: TinyRun, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = TinyRun(tmp_path / "other", run.text, (*WORDS, "train.seed=1")).trained()
    theirs = exported(other, tmp_path / "theirs")
    shutil.copy(theirs / "provenance.json", copy)
    code, out, _ = verified(capsys, copy)
    run_id = json.loads((other.workdir / "run.json").read_text())["run_id"]
    assert code == 1 and f"the statement, which is about step 6 of the run {run_id}" in out
    assert "another run's statement" in out and "README.md quotes a statement" in out
    shutil.copy(theirs / "README.md", copy)
    assert verified(capsys, copy)[0] == 1


@pytest.mark.parametrize("name", ["extra.safetensors", "pytorch_model.bin", "modeling.py", "sub/model.gguf"])
def test_a_file_that_a_program_would_load_must_be_named(
    copy: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text("")
    (copy / "notes.txt").write_text("mine")
    code, out, _ = verified(capsys, copy)
    assert code == 1 and out.startswith(f"differs: {name}: the statement does not name this file\nshown")


def test_programs_of_the_system_sign_a_statement(copy: Path, tmp_path: Path) -> None:
    def call(*words: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, input=text, capture_output=True, cwd=copy)

    key, text = tmp_path / "key", (copy / "provenance.json").read_bytes()
    assert call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", str(key)).returncode == 0
    signed = call("ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "file", "provenance.json")
    assert signed.returncode == 0 and (copy / "provenance.json.sig").is_file(), signed.stderr
    (tmp_path / "signers").write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")
    check = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "signers"), "-I", "me@example.org"]
    check += ["-n", "file", "-s", "provenance.json.sig"]
    assert call(*check, text=text).returncode == 0
    assert call(*check, text=text.replace(b"train.steps", b"train.stepz")).returncode != 0
    assert main(["verify", str(copy)]) == 0  # the signature is no file of the statement


def test_the_sources_of_a_mixture_have_their_own_hashes(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for number in range(20):
        (other / f"{number}.txt").write_text(f"this is {number}\n" * 40)
    sources = f"data.sources=a.path={run.text} b.path={other}"
    data = ["data.mix=a:0.5,b:0.5", sources, f"data.cache_dir={tmp_path / 'cache'}"]
    mixed = TinyRun(tmp_path / "mixed", run.text)
    assert main([f"--config={mixed.config}", f"--workdir={mixed.workdir}", *data, *WORDS]) == 0
    to = exported(mixed, tmp_path / "out")
    predicate = content(to)["predicate"]
    assert predicate["config"]["values"]["data.sources"] == "a.path=text b.path=other"
    kept = content(exported(run, tmp_path / "plain"))["predicate"]["data"]["documents"]
    assert predicate["data"]["sources"]["a"]["documents"] == kept
    assert len(predicate["data"]["sources"]["b"]["ids"]) == 64 and predicate["missing"] == []
    code, _, err = verified(capsys, to, f"--data={run.text}")
    assert code == 2 and "has no hash of the documents or of their files" in err
    code, out, _ = verified(capsys, to, "--train", *data[1:])
    assert code == 0 and "the tokens have the seal of the statement" in out


def test_files_of_records_are_compared_one_by_one(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for part in range(2):
        lines = [json.dumps({"text": f"number {n} of part {part} " * 9}) for n in range(40)]
        (data / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    words = [f"data.path={data}", f"data.cache_dir={tmp_path / 'cache'}", *WORDS]
    records = TinyRun(tmp_path / "records", run.text)
    assert main([f"--config={records.config}", f"--workdir={records.workdir}", *words]) == 0
    to = exported(records, tmp_path / "out")
    found = content(to)["predicate"]["data"]
    assert found["files"] == [
        hashlib.sha256((data / f"{n}.jsonl").read_bytes()).hexdigest() for n in range(2)
    ]
    assert "listing" in found and "documents" not in found
    code, out, _ = verified(capsys, to, f"--data={data}")
    assert code == 0 and f"all files that the run read (2) are in {data}" in out
    (data / "1.jsonl").write_text((data / "1.jsonl").read_text().replace("number", "Number", 1))
    code, out, _ = verified(capsys, to, f"--data={data}")
    assert code == 1 and f"differs: data: 1 of the 2 files that the run read are not in {data}" in out


def test_a_stream_has_no_hash_but_trains(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"number {n} " * 90}) for n in range(60)) + "\n")
    words = [f"data.path={data}", "data.pipeline=pack", "data.cache=stream", *WORDS]
    words += [f"data.cache_dir={tmp_path / 'cache'}"]
    streamed = TinyRun(tmp_path / "streamed", run.text)
    assert main([f"--config={streamed.config}", f"--workdir={streamed.workdir}", *words]) == 0
    to = exported(streamed, tmp_path / "out")
    assert any("data.documents: the token cache" in text for text in content(to)["predicate"]["missing"])
    code, _, err = verified(capsys, to, f"--data={data}")
    assert code == 2 and "has no hash of the documents or of their files" in err
    code, out, _ = verified(capsys, to, f"--data={data}", "--train", words[-1])
    assert code == 0 and "the data by their own hash" in out and "all files have the same bytes" in out
