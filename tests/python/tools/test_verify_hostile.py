"""Statements of strangers: bounded, inside the folder, and refused with one line that names the fault."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.provenance import check
from mudd_core.provenance.check import Findings, check_files
from mudd_core.provenance.statement import MAX_BYTES, NAME, read_statement, statement_bytes
from provenance_cases import section_hash, verified

COUNT = int(os.environ.get("MUDD_MUTATIONS", "200"))
SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of an empty file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an exported folder with an empty weight file and one other file."""
    place = tmp_path / "export"
    place.mkdir()
    for name in ("model.safetensors", "config.json"):
        (place / name).write_bytes(b"")
    sections: dict[str, Any] = {
        "config": {"hash": SHA256, "values": {"train.steps": 3, "model.family": "transformer_pp"}},
        "data": {"name": "text", "documents": SHA256, "files": [SHA256]},
        "code": {"version": "0.1.0"},
        "run": {"id": "0" * 16, "step": 3, "losses": {"step": [1, 3], "loss": [2.5, 1e-3]}},
        "missing": [],
    }
    files = {"config.json": SHA256}
    (place / NAME).write_bytes(statement_bytes({"model.safetensors": SHA256}, files, sections))
    assert main(["verify", str(place)]) == 0
    return place


def replaced(folder: Path, **members: Any) -> None:
    """Replace members of the statement."""
    raw = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**raw, **members}))


OUTSIDE = (
    "../secret",
    "/etc/passwd",
    "a/../../secret",
    "./model.safetensors",
    "a//b",
    "",
    ".",
    "a\\b",
    "a\nb",
    "x" * 600,
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_outside_the_folder_is_refused(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "secret").write_bytes(b"")
    replaced(folder, subject=[{"name": name, "digest": {"sha256": SHA256}}])
    code, out, err = verified(capsys, folder)
    assert code == 2 and out == "" and "expected a file in the folder" in err and len(err) < 400


@pytest.mark.parametrize("name", ["link", "linked/secret", "pipe", "deep"])
def test_links_and_pipes_are_not_followed(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "secret").write_bytes(b"")
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "linked").symlink_to(folder.parent)
    (folder / "deep").mkdir()
    os.mkfifo(folder / "pipe")
    replaced(folder, subject=[{"name": name, "digest": {"sha256": SHA256}}])
    code, out, _ = verified(capsys, folder)
    assert code == 1 and f"differs: {name}: expected a " in out


def test_deep_and_large_folders_are_bounded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for _ in range(1010):  # deeper than Python's limit of calls
        os.mkdir("a")
        os.chdir("a")
    Path("x.py").write_text("")
    monkeypatch.chdir(folder)
    code, out, _ = verified(capsys, folder)
    assert code == 1 and "x.py: the statement does not name" not in out and "differs: a/a/a" in out
    subprocess.run(["rm", "-rf", "a"], check=True)  # shutil.rmtree recurses
    monkeypatch.setattr(check, "_MOST_SEEN", 20)
    for number in range(21):
        (folder / f"{number}.txt").touch()
    code, _, err = verified(capsys, folder)
    assert code == 2 and "expected at most 20 files, got more; move the ones away" in err


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "sparse", "plain"])
def test_a_card_that_cannot_be_read_is_named(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    card, reason = folder / "README.md", "(expected a "
    if kind == "link":
        card.symlink_to(folder / "config.json")
    elif kind == "pipe":
        os.mkfifo(card)
    elif kind == "folder":
        card.mkdir()
    else:
        card.write_text("# a model\n")
        reason = "because it quotes none"
    if kind == "sparse":
        os.truncate(card, 1 << 40)  # more than the memory
    code, out, _ = verified(capsys, folder)
    assert code == 0 and "that README.md means this statement" in out and reason in out, out


def test_a_statement_that_is_a_link_or_missing_or_large(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / NAME
    text = file.read_bytes()
    file.rename(folder.parent / "elsewhere.json")
    code, _, err = verified(capsys, folder)
    assert code == 2 and "No such file" in err and "export the run again" in err
    file.symlink_to(folder.parent / "elsewhere.json")
    assert verified(capsys, folder)[0] == 2
    file.unlink()
    file.write_bytes(text + b" " * MAX_BYTES)
    code, _, err = verified(capsys, folder)
    assert code == 2 and "expected at most 4,194,304 bytes" in err


DAMAGED = {
    "": "not JSON",
    "[" * 200_000: "not JSON",
    '{"a": ' * 50_000: "not JSON",
    "[]": "expected an object",
    '{"_type": 1}': "_type: expected",
    '{"_type": "x", "_type": "x"}': "a key appears twice",
    "NaN": "NaN is not a JSON number",
    "9" * 5000: "not JSON",
    "\xff": "_type",
}


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_statement_is_refused_by_name(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / NAME).write_text(text, encoding="latin-1")
    code, _, err = verified(capsys, folder)
    assert code == 2 and len(err) < 500 and (DAMAGED[text] in err or "not JSON" in err)


def test_members_of_another_type_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.loads((folder / NAME).read_text())
    one = {"name": "model.safetensors", "digest": {"sha256": SHA256}}
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"predicateType": "https://slsa.dev/provenance/v1"}, "predicateType: expected 'urn:mudd-core"),
        ({"predicate": []}, "predicate: expected an object"),
        ({"predicate": {**good["predicate"], "run": 3}}, "predicate.run: expected an object or null"),
        ({"predicate": {**good["predicate"], "sections": {"run": 3}}}, "predicate.sections: expected hashes"),
        ({"predicate": {**good["predicate"], "more": deep}}, "at most 16 levels"),
        ({"subject": []}, "at least one file"),
        ({"subject": [one] * 10_001}, "at most 10,000 files"),
        ({"subject": [one, one]}, "listed twice"),
        ({"subject": [{**one, "name": "config.json"}]}, "is in subject too"),
        ({"subject": [{**one, "digest": {"sha256": SHA256.upper()}}]}, "a digest with sha256"),
        ({"subject": [{**one, "digest": {"md5": "0"}}]}, "a digest with sha256"),
    ]
    for members, text in cases:
        (folder / NAME).write_text(json.dumps({**good, **members}))
        code, _, err = verified(capsys, folder)
        assert code == 2 and text in err, (text, err)


def test_wrong_arguments_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for words, text in (
        (["verify"], "EXPORT is missing; type: "),
        (["verify", "nowhere"], "which does not exist"),
        (["verify", str(tmp_path / "empty")], "expected the statement that `export` writes"),
        (["verify", str(folder), "--data=nowhere"], "--data: expected the file or folder of the data"),
        (["verify", str(folder), "--tokenizer=nowhere"], "has no hash of a tokenizer"),
        (["verify", str(folder), f"--base={folder}"], "--base"),
        (["verify", str(folder), "--base=nowhere"], "names no base weights; leave --base out"),
        (["verify", str(folder), "--run=x"], "--run: expected --train with it"),
        (["verify", str(folder), "--dta=x"], "did you mean"),
        (["verify", str(folder), str(folder)], "unexpected argument"),
    ):
        assert main(words) == 2
        assert text in capsys.readouterr().err, words


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a JSON value with one random change somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {one: kept for one, kept in value.items() if one != key}
        return {**value, key: mutated(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        inner = [] if rng.random() < 0.2 else [mutated(rng, value[at], depth + 1)]
        return [*value[:at], *inner, *value[at + 1 :]]
    choices = [None, True, -1, 10**400, 1e308, "", "../x", "\ud800", "\x1b[2J", "x" * 5000, [], {}]
    return rng.choice([*choices, [[]], {"a": []}, 0.5])


def test_mutated_statements_are_equal_or_refused(folder: Path) -> None:
    rng = random.Random(51)
    file = folder / NAME
    good, raw = file.read_bytes(), json.loads(file.read_text())
    codes = {0: 0, 1: 0, 2: 0}
    for number in range(COUNT):
        if number % 2:
            changed = bytearray(good)
            for _ in range(rng.randint(1, 2)):
                at, size = rng.randrange(len(changed)), rng.randint(0, 2)
                changed[at : at + size] = bytes(rng.choices(b'0123abcdef{}[]",:\\\xff', k=size))
            file.write_bytes(changed)
        else:
            within = number % 3 > 0
            value = {**raw, "predicate": mutated(rng, raw["predicate"])} if within else mutated(rng, raw)
            if within and isinstance(value["predicate"], dict) and number % 4:
                names = raw["predicate"]["sections"]
                value["predicate"]["sections"] = {
                    name: section_hash(value["predicate"].get(name)) for name in names
                }
            file.write_text(json.dumps(value))
        codes[code_of(folder)] += 1
    assert all(count > COUNT // 50 for count in codes.values()), codes


def code_of(folder: Path) -> int:
    """Return the exit code of verify, which must be no other error than a UserError."""
    words = ["verify", str(folder), f"--data={folder / 'config.json'}"]
    try:
        found = Findings()
        check_files(read_statement(folder / NAME), found)
    except UserError:
        assert main(words) == 2
        return 2
    code = main(words)
    assert code == 1 if found.differs else code in (0, 1, 2)
    return code
