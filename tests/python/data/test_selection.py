"""The training and validation files of a folder: records among cards and images, splits by name, saved sets, links."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import load_config
from mudd_core.config.data import DataConfig
from mudd_core.data.formats import documents
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.text import in_records
from mudd_core.data.sources.corpus import scan
from mudd_core.data.sources.selection import selected
from mudd_core.data.sources.splits import sources_of

TEXTS = [f"text {n}" for n in range(12)]
PNG = b"\x89PNG\r\n\x1a\n\0\0"


def lines(texts: list[str], column: str = "text") -> bytes:
    return b"".join(json.dumps({column: text}).encode() + b"\n" for text in texts)


def parquet(path: Path, texts: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": texts}), path)


def array(path: Path, texts: list[str]) -> None:
    path.write_text(json.dumps([{"text": text} for text in texts], indent=1))


def plain(path: Path, texts: list[str]) -> None:
    path.write_bytes(lines(texts))


def packed(path: Path, texts: list[str]) -> None:
    path.write_bytes(gzip.compress(lines(texts)))


WRITERS: dict[str, Callable[[Path, list[str]], None]] = {
    "a.jsonl": plain,
    "a.ndjson": plain,
    "a.json": plain,
    "array.json": array,
    "a.json.gz": packed,
    "a.jsonl.gz": packed,
    "part-0": plain,
    "a.parquet": parquet,
    "a.pq": parquet,
}


def write(folder: Path, files: dict[str, list[str] | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            WRITERS.get(path.name, parquet if path.suffix == ".parquet" else plain)(path, content)
    return folder


def trained(settings: DataConfig) -> list[str]:
    found = sources_of(settings)
    return [text for file in found.train for text in documents(file)]


@pytest.mark.parametrize("pipeline", ["text", "pack", "rows", "blocks"])
@pytest.mark.parametrize("name", WRITERS)
def test_records_train_without_cards_and_images(name: str, pipeline: str, tmp_path: Path) -> None:
    cards: dict[str, list[str] | bytes] = {
        "README.md": b"# A card",
        "docs/readme.txt": b"a card",
        "LICENSE": b"MIT",
        "_SUCCESS": b"",
        "_committed_1": b"{}",
        "chart.PNG": PNG,
        "art.svg": b"<svg/>",
        ".gitattributes": b"*.parquet filter=lfs",
    }
    folder = write(tmp_path / "d", {f"data/{name}": TEXTS, **cards})
    settings = DataConfig(path=str(folder), pipeline=pipeline)
    assert in_records(settings)
    assert trained(settings) == TEXTS
    (note,) = sources_of(settings).notes
    assert note.startswith("files without records are left out: ") and "and 3 more" in note
    pattern = replace(settings, path=f"{folder}/**/*")
    assert trained(pattern) == TEXTS


def test_text_alone_stays_text_with_its_readme(tmp_path: Path) -> None:
    files: dict[str, list[str] | bytes] = {f"{n}.txt": b"text %d" % n for n in range(6)}
    files |= {
        "README.md": b"read me",
        "package.json": b'{"name": "a"}\n',
        "x.npy": b"\x93NUMPY\1\0" + b"\0" * 9,
    }
    folder = write(tmp_path / "d", files)
    assert not in_records(DataConfig(path=str(folder)))
    corpus = scan(str(folder))
    names = {Path(os.fsdecode(one.path)).name for one in (*corpus.train, *corpus.valid)}
    assert names == {*(f"{n}.txt" for n in range(6)), "README.md", "package.json"}


@pytest.mark.parametrize("pipeline", ["text", "pack"])
@pytest.mark.parametrize("record", ["train.jsonl", "train.parquet", "train.json.gz"])
@pytest.mark.parametrize("prose", ["notes.txt", "x/load.py", "NOTES"])
def test_records_among_prose_are_refused_with_the_way_to_choose(
    record: str, prose: str, pipeline: str, tmp_path: Path
) -> None:
    """Check that the remedy in the message keeps the splits."""
    held = record.replace("train", "test")
    files: dict[str, list[str] | bytes] = {
        record: TEXTS,
        held: ["held"],
        prose: b"some prose",
        "README.md": b"card",
    }
    folder = write(tmp_path / "d", files)
    settings = DataConfig(path=str(folder), pipeline=pipeline)
    with pytest.raises(UserError, match=r"expected files of one kind .* data\.format=text") as refused:
        sources_of(settings) if pipeline == "pack" else in_records(settings)
    cure = re.findall(r"data\.format=(\w+)", str(refused.value))[0]
    chosen = replace(settings, format=cure)
    assert trained(chosen) == TEXTS
    assert prose in sources_of(chosen).notes[0] and held in sources_of(chosen).notes[1]
    assert not in_records(DataConfig(path=str(folder), format="text"))


def test_a_run_that_read_such_a_folder_as_text_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "d", {"train.jsonl": TEXTS, "notes.txt": b"some prose"})
    words = [f"data.path={folder}", "data.tokenizer=bytes", f"data.cache_dir={tmp_path}/c"]
    config, quiet = load_config("tiny.py", words), lambda *_: None
    with monkeypatch.context() as earlier:
        earlier.setattr("mudd_core.data.pipelines.text.in_records", lambda settings: False)
        known = prepare(config, progress=quiet).fingerprint
    with pytest.raises(UserError, match="files of one kind"):
        prepare(config, progress=quiet)
    for _ in range(2):  # with its cache, and without
        assert prepare(config, fingerprint=known, progress=quiet).fingerprint == known
        shutil.rmtree(tmp_path / "c")


def test_names_of_records_are_no_cards(tmp_path: Path) -> None:
    files: dict[str, list[str] | bytes] = {
        "licenses.jsonl": TEXTS[:2],
        "a.jsonl": TEXTS[2:],
        "config.json": b'{"a": 1}\n',
    }
    folder = write(tmp_path / "d", files)
    assert sorted(trained(DataConfig(path=str(folder), pipeline="pack"))) == sorted(TEXTS)


def test_a_single_file_has_the_rule_of_a_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.json": TEXTS, "other.json": b'{"name": "a"}\n', "a.txt": b"text"})
    assert in_records(DataConfig(path=str(folder / "a.json")))
    assert not in_records(DataConfig(path=str(folder / "other.json")))
    assert not in_records(DataConfig(path=str(folder / "a.txt")))
    assert in_records(DataConfig(path=str(folder / "other.json"), column="name"))


SPLITS = {"train": TEXTS[:8], "validation": TEXTS[8:10], "test": TEXTS[10:]}
LAYOUTS: dict[str, dict[str, list[str] | bytes]] = {
    "shards": {f"data/{split}-00000-of-00001.parquet": some for split, some in SPLITS.items()},
    "flat": {f"{split}.jsonl": some for split, some in SPLITS.items()},
    "short": {"train.jsonl": TEXTS[:8], "val.jsonl": TEXTS[8:10], "eval.jsonl": TEXTS[10:]},
    "prefixed": {f"wiki-{split}-00.parquet": some for split, some in SPLITS.items()},
    "folders": {f"{split}/part.jsonl": some for split, some in SPLITS.items()},
    "deep": {f"en/my-{split}_2/test.jsonl": some for split, some in SPLITS.items()},
    "folders before files": {
        "train/test.jsonl": TEXTS[:8],
        "dev/train.jsonl": TEXTS[8:10],
        "x.jsonl": TEXTS[10:],
    },
    "no test": {"training.parquet": TEXTS[:8], "dev.parquet": TEXTS[8:]},
    "no validation": {"train.parquet": TEXTS[:8], "testing.parquet": TEXTS[8:]},
    "others": {"train.jsonl": TEXTS[:8], "extra.jsonl": TEXTS[8:]},
    "no words": {"trainer.jsonl": TEXTS[:8], "contest.jsonl": TEXTS[8:]},
    "one": {"train.jsonl": TEXTS},
}


def by_datasets(folder: Path) -> dict[str, list[str]]:
    """Return the records of each split as `datasets` reads them."""
    import datasets

    kind = "parquet" if list(folder.rglob("*.parquet")) else "json"
    files = datasets.data_files.get_data_patterns(str(folder))
    loaded = datasets.load_dataset(
        kind, data_dir=str(folder), data_files=files, cache_dir=str(folder.parent / "hf")
    )
    return {str(split): list(rows["text"]) for split, rows in loaded.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("of_dataset", [False, True])
def test_splits_are_those_of_the_hub(layout: str, of_dataset: bool, tmp_path: Path) -> None:
    folder = write(tmp_path / "d", LAYOUTS[layout])
    wanted = by_datasets(folder)
    settings = DataConfig(path=str(folder), pipeline="pack")
    found = sources_of(settings)
    assert trained(settings) == wanted["train"]
    valid = [text for file in found.valid for text in documents(file)]
    assert valid == wanted.get("validation", [])
    everything = sorted(trained(replace(settings, split="all")))
    assert everything == sorted(TEXTS)
    if len(wanted) > 1 or layout == "others":
        assert "splits by file name: train: " in found.notes[0] and "data.split=all" in found.notes[0]
    if of_dataset and layout != "folders before files":  # its rule: folders named train, validation and test
        words = [
            f"data.dataset={folder}",
            "data.pipeline=pack",
            "data.tokenizer=bytes",
            f"data.cache_dir={tmp_path}/c",
        ]
        data = prepare(load_config("tiny.py", words), progress=lambda *_: None)
        held = 0 if wanted.get("validation") else data.documents[1]
        assert data.documents[0] + held == len(wanted["train"])


def test_what_is_typed_wins_over_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", LAYOUTS["flat"])
    other = write(tmp_path / "e", {"mine.jsonl": ["mine"]})
    base = DataConfig(path=str(folder), pipeline="pack")
    typed = sources_of(replace(base, eval_path=str(other)))
    assert [file.name for file in typed.valid] == ["mine.jsonl"] and len(typed.train) == 1
    matched = sources_of(replace(base, eval_match="/test."))
    assert [file.name for file in matched.valid] == ["test.jsonl"]
    assert [file.name for file in matched.train] == ["train.jsonl"]
    assert trained(replace(base, split="test")) == SPLITS["test"]
    assert trained(replace(base, path=f"{folder}/*.jsonl", format="jsonl")) == [
        *SPLITS["test"],
        *SPLITS["train"],
        *SPLITS["validation"],
    ]
    with pytest.raises(
        UserError, match=r"\[data\.split\] expected a split of .* \(test, train, validation\), or all"
    ):
        sources_of(replace(base, split="dev"))
    shards = write(
        tmp_path / "s", {f"data/{name}-00000-of-00001.parquet": ["a"] for name in ("train_sft", "test_sft")}
    )
    with pytest.raises(UserError, match=r"\(test_sft, train_sft\), or all, got 'train'"):
        sources_of(DataConfig(path=str(shards), pipeline="pack"))
    parts = write(tmp_path / "p", {f"data/{name}-00000-of-00001.parquet": [name] for name in ("en", "de")})
    assert trained(DataConfig(path=str(parts), pipeline="pack")) == ["de", "en"]


def saved(folder: Path, count: int, shards: int) -> None:
    import datasets

    datasets.Dataset.from_dict({"text": TEXTS[:count]}).save_to_disk(str(folder), num_shards=shards)


def test_a_saved_set_is_what_its_state_names(tmp_path: Path) -> None:
    import datasets

    folder = tmp_path / "d"
    saved(folder, 12, 4)
    saved(folder, 6, 1)  # the old shards remain
    assert len(list(folder.glob("data-*.arrow"))) == 5
    again = datasets.load_from_disk(str(folder))
    again.map(lambda row: {"text": row["text"].upper()})
    again.shuffle(seed=1)
    assert list(folder.glob("cache-*.arrow"))
    for path in (folder, tmp_path):
        assert trained(DataConfig(path=str(path), pipeline="pack")) == TEXTS[:6]
    state = json.loads((folder / "state.json").read_text())
    cases = {
        "is missing": None,
        "cannot be read": "{",
        "does not list": "{}",
        "is not there": json.dumps({**state, "_data_files": [{"filename": "data-00009-of-00010.arrow"}]}),
    }
    for said, content in cases.items():
        copy = Path(shutil.copytree(folder, tmp_path / said))
        (copy / "state.json").unlink()
        if content is not None:
            (copy / "state.json").write_text(content)
        with pytest.raises(UserError, match=said) as refused:
            sources_of(DataConfig(path=str(copy), pipeline="pack"))
        if cure := str(refused.value).partition("data.path='")[2].partition("'")[0]:
            assert (
                len(trained(DataConfig(path=cure, pipeline="pack"))) > 6
            )  # this pattern includes the old shards too
    one = DataConfig(path=f"{folder}/data-0000[0]-of-00001.arrow", pipeline="pack")
    assert trained(one) == TEXTS[:6]


def test_links_are_followed_inside_and_counted_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "d", {"real/a.jsonl": TEXTS[:4]})
    outside = write(tmp_path / "out", {"b.jsonl": TEXTS[4:6], "more/c.jsonl": TEXTS[6:8]})
    (root / "same.jsonl").symlink_to("real/a.jsonl")  # read only once
    (root / "b.jsonl").symlink_to(outside / "b.jsonl")
    (root / "more").symlink_to(outside / "more")
    (root / "dangling.jsonl").symlink_to("nothing.jsonl")
    found = selected(str(root))
    assert [file.name for file in found.files] == ["a.jsonl"]
    assert found.notes == (f"3 links left out, {root}/b.jsonl first",)
    monkeypatch.setenv("HF_HUB_CACHE", str(outside))
    assert [file.name for file in selected(str(root)).files] == ["b.jsonl", "a.jsonl"]


@pytest.mark.parametrize("in_cache", [True, False])
def test_a_snapshot_of_the_hub_is_all_links(
    in_cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / ("hub" if in_cache else "elsewhere")))
    repository = tmp_path / "hub" / "datasets--me--it"
    snapshot = repository / "snapshots" / "abc"
    (repository / "blobs").mkdir(parents=True)
    for split, texts in SPLITS.items():
        (repository / "blobs" / f"{split}0").write_bytes(lines(texts))
        (snapshot / "data").mkdir(parents=True, exist_ok=True)
        (snapshot / "data" / f"{split}.jsonl").symlink_to(f"../../../blobs/{split}0")
    (snapshot / "README.md").write_text("card")
    assert trained(DataConfig(path=str(snapshot), pipeline="pack")) == SPLITS["train"]


@pytest.mark.parametrize(
    "twice",
    [
        "{d}/a.jsonl,{d}/a.jsonl",
        "{d},{d}/a.jsonl",
        "{d}/*.jsonl,{d}/a.jsonl",
        "{d}/a.jsonl,{d}/../d/a.jsonl",
        "{d}/a.jsonl,{d}/../link.jsonl",
    ],
)
def test_a_file_named_twice_is_refused_but_for_a_run_that_resumes(twice: str, tmp_path: Path) -> None:
    write(tmp_path / "d", {"a.jsonl": TEXTS, "b.jsonl": TEXTS})
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "d" / "a.jsonl")
    settings = DataConfig(path=twice.format(d=tmp_path / "d"), pipeline="pack")
    with pytest.raises(UserError, match=r"expected each file once, got '.*\.jsonl' twice"):
        sources_of(settings)
    assert "a.jsonl" in {file.name for file in sources_of(settings, resumed=True).train}


def test_a_run_whose_files_would_change_is_refused(tmp_path: Path) -> None:
    """Use a run of an earlier version, which trained on all files, after its cache was deleted."""
    folder = write(tmp_path / "d", LAYOUTS["flat"])
    words = [
        f"data.path={folder}",
        "data.pipeline=pack",
        "data.tokenizer=bytes",
        f"data.cache_dir={tmp_path}/c",
    ]
    quiet = lambda *_: None  # noqa: E731
    earlier = prepare(load_config("tiny.py", [*words, "data.split=all"]), progress=quiet).fingerprint
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(UserError, match=rf"{earlier} is missing.*, add data\.split=all"):
        prepare(load_config("tiny.py", words), fingerprint=earlier, progress=quiet)
    again = prepare(load_config("tiny.py", [*words, "data.split=all"]), fingerprint=earlier, progress=quiet)
    assert again.fingerprint == earlier


def test_each_of_several_folders_has_splits(tmp_path: Path) -> None:
    write(tmp_path / "a", LAYOUTS["flat"])
    write(tmp_path / "b", {"train.jsonl": ["b train"], "test.jsonl": ["b test"]})
    write(tmp_path, {"c.jsonl": ["c"]})
    settings = DataConfig(path=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c.jsonl", pipeline="pack")
    assert trained(settings) == [*SPLITS["train"], "b train", "c"]
    assert "left out: test.jsonl, test.jsonl" in sources_of(settings).notes[0]
    typed = replace(settings, eval_path=f"{tmp_path}/a/test.jsonl,{tmp_path}/b/test.jsonl")
    assert not any("test.jsonl" in note for note in sources_of(typed).notes)


def test_a_folder_of_links_that_lead_elsewhere_says_so(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "out.jsonl").write_bytes(lines(TEXTS))
    (tmp_path / "d" / "a.jsonl").symlink_to(tmp_path / "out.jsonl")
    with pytest.raises(UserError, match=r"has no files except 1 links to other places, .* first"):
        selected(str(tmp_path / "d"))
