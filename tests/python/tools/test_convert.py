"""`data convert` and `data inspect`: the conversions in the documents, by the command's own entry point."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.cli import main
from mudd_core.data.formats import documents, rows
from mudd_core.data.formats.megatron import head_bytes
from mudd_core.tools.convert.command import main as convert

TEXTS = [f"document {n} é\n" * (n % 5 + 1) for n in range(60)]


def write_lines(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return path


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_arrow_to_tfrecord_to_arrayrecord(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import datasets

    for split, count in (("train", 2), ("validation", 1)):
        data = datasets.Dataset.from_dict({"text": [f"{split} {t}" for t in TEXTS[: 10 * count]]})
        data.save_to_disk(str(tmp_path / "owt" / split), num_shards=count)
    assert (
        main(["data", "convert", f"--from={tmp_path}/owt", f"--to={tmp_path}/tf", "--format=tfrecord"]) == 0
    )
    names = ["train_data_00000.tfrecord", "train_data_00001.tfrecord", "validation_data_00000.tfrecord"]
    assert sorted(os.listdir(tmp_path / "tf")) == names
    assert list(documents(tmp_path / "tf" / names[1])) == [f"train {t}" for t in TEXTS[10:20]]
    capsys.readouterr()
    words = [f"--input_pattern={tmp_path}/tf/*.tfrecord", f"--output_path={tmp_path}/ar"]
    assert convert(words) == 0
    said = capsys.readouterr().out
    made = [name.replace("tfrecord", "arrayrecord") for name in names]
    assert sorted(os.listdir(tmp_path / "ar")) == made
    assert list(documents(tmp_path / "ar" / made[2])) == [f"validation {t}" for t in TEXTS[:10]]
    for name, digest in contents(tmp_path / "ar").items():
        assert name in said
        assert digest in said
    with pytest.raises(UserError, match="exists already; remove it"):
        convert(words)
    assert not [name for name in os.listdir(tmp_path / "ar") if name.startswith(".")]


def test_items_to_records_of_the_pile(tmp_path: Path) -> None:
    items = np.random.default_rng(1).integers(0, 50, (7, 9)).tolist()
    (tmp_path / "p.bin").write_bytes(np.array(items, "<u2").tobytes())
    (tmp_path / "p.idx").write_bytes(head_bytes(8, np.full(7, 9), np.arange(8)))
    convert([f"--from={tmp_path}/p", f"--to={tmp_path}/out", "--length=9", "--shards=2"])
    assert [v.tolist() for v in rows(tmp_path / "out/pile.tfrecord.b0", named="tfrecord")] == items[::2]
    assert [v.tolist() for v in rows(tmp_path / "out/pile.tfrecord.b1", named="tfrecord")] == items[1::2]
    convert([f"--from={tmp_path}/p", f"--to={tmp_path}/cut", "--length=5"])
    with pytest.raises(UserError, match="--split-valid: expected documents, got ids"):
        convert([f"--from={tmp_path}/p", f"--to={tmp_path}/held", "--split-valid=0.5"])
    joined = [i for item in items for i in item]
    assert [v.tolist() for v in rows(tmp_path / "cut/pile.tfrecord.b0", named="tfrecord")] == [
        joined[k : k + 5] for k in range(0, len(joined) - 4, 4)
    ]


def test_all_that_a_conversion_drops_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(63, dtype="<u2").tofile(tmp_path / "a.u16")
    convert([f"--from={tmp_path}/a.u16", f"--to={tmp_path}/cut", "--length=5"])
    assert "dropped  2 ids after the last whole record of 5 ids\n" in capsys.readouterr().out
    convert([f"--from={tmp_path}/a.u16", f"--to={tmp_path}/whole", "--length=63"])
    assert "dropped" not in capsys.readouterr().out
    (tmp_path / "c4").mkdir()
    for name in ("c4-train.00000.jsonl", "c4-validation.00000.jsonl"):
        lines = [json.dumps({"text": text, "url": "u", "tags": {"a": 1}}) + "\n" for text in TEXTS[:4]]
        (tmp_path / "c4" / name).write_text("".join(lines))
    monkeypatch.setattr("mudd_core.tools.convert.command._C4_VALIDATION", 3)
    convert([f"--from={tmp_path}/c4", f"--to={tmp_path}/out", "--format=c4"])
    said = capsys.readouterr().out
    assert "dropped  1 validation documents after the first 3\n" in said
    assert "dropped  all columns but 'text': url, tags\n" in said


def test_lines_to_an_indexed_data_set(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", TEXTS)
    words = [f"--from={source}", "--format=megatron", "--tokenizer=bytes"]
    convert([*words, f"--to={tmp_path}/ids"])
    got = [v.tolist() for v in rows(tmp_path / "ids" / "train_text_document_00000.bin")]
    assert got == [[*t.encode(), 256] for t in TEXTS]
    with pytest.raises(UserError, match="--tokenizer"):
        convert([*words[:2], f"--to={tmp_path}/other"])
    assert not (tmp_path / "other").exists()


def test_documents_are_held_out_by_hash_and_bytes_repeat(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", TEXTS)
    turned = write_lines(tmp_path / "b.jsonl", TEXTS[::-1])
    held = []
    for name, path in (("one", source), ("two", source), ("three", turned)):
        convert([f"--from={path}", f"--to={tmp_path / name}", "--format=tfrecord", "--split-valid=0.25"])
        held.append(set(documents(tmp_path / name / "validation_data_00000.tfrecord")))
        trained = set(documents(tmp_path / name / "train_data_00000.tfrecord"))
        assert held[-1] | trained == set(TEXTS)
        assert not held[-1] & trained
    assert held[0] == held[2]
    assert 5 < len(held[0]) < 25
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_c4_gets_the_names_of_the_resplit(tmp_path: Path) -> None:
    for n in range(3):
        write_lines(tmp_path / "c4" / f"c4-train.{n:05d}.jsonl", TEXTS[n::3])
    write_lines(tmp_path / "c4" / "c4-validation.00000.jsonl", TEXTS[:4])
    convert([f"--from={tmp_path}/c4", f"--to={tmp_path}/out", "--format=c4"])
    names = [f"c4-train.{n:05d}-of-00003.json" for n in range(3)]
    assert sorted(os.listdir(tmp_path / "out")) == [*names, "c4-validation_24567exp.json"]
    assert list(documents(tmp_path / "out" / names[1])) == TEXTS[1::3]


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", TEXTS)
    source.write_text(source.read_text() + "{\n")
    words = [f"--from={source}", f"--to={tmp_path}/out", "--format=tfrecord"]
    with pytest.raises(FormatError):
        convert(words)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError):
        convert([f"--from={write_lines(source, TEXTS)}", f"--to={tmp_path}/file/out", "--format=tfrecord"])


def test_inspect_says_what_files_hold_and_knows_c4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("c4-train.00001-of-01024", "c4-train.00800-of-01024", "c4-validation_24567exp"):
        write_lines(tmp_path / f"{name}.json", TEXTS[:5])
    assert main(["data", "inspect", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "jsonl, 5 records" in said
    assert "text  lengths 13 to 65, mean 39.0" in said
    assert "record 0  text  'document 0 é\\n'" in said
    assert "train1: 1 of 768 files (0 to 767), 5 documents found, 274,651,678 known" in said
    assert "train2: 1 of 256 files (768 to 1023), 5 documents found, 91,217,223 known" in said
    assert "validation_24567exp: 5 documents found, 24,567 known" in said
    assert main(["data", "inspect", str(tmp_path / "gone")]) == 2
