"""`data convert SOURCE --to=NAME.parquet`, `.jsonl` and `.arrow`: what is written trains like the source."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from chat_cases import chat_config, turns, write_folder, write_jsonl
from id_cases import config_of, write_indexed, write_records
from mudd_core.base.framing import framed
from mudd_core.cli import main
from mudd_core.config import Config, load_config
from mudd_core.data.formats import documents, format_of, rows
from mudd_core.data.formats.example import encoded
from mudd_core.data.pipelines import prepare
from mudd_core.data.rows import RowShape
from mudd_core.tools.convert.one_file import WRITERS

ENDINGS = tuple(WRITERS)
TEXTS = [f"document {n} é {'word ' * (n % 50)}\n\n" * (n % 7 + 1) for n in range(90)]
CALL = {"type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC", "at": 1}}}
TOOL = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "required": ["zone"]}},
}
CHATS: list[dict[str, object]] = [
    {"messages": turns("What time?", "Noon."), "source": "a", "score": 1},
    {"messages": [{"role": "system", "content": "Be brief."}, *turns("Hi", "Yo")], "score": 0.5},
    {
        "messages": [
            {"role": "user", "content": "What time?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"content": "12:00", "role": "tool"},
            {"role": "assistant", "content": "Noon."},
        ],
        "tools": [TOOL],
    },
    {"prompt": "What time?", "completion": "Late."},
    {"system": "Be kind.", "messages": turns("Hi", "Hello", "Bye", "See you")},
    *({"messages": turns(f"Question {n}?", f"Answer {n}.")} for n in range(40)),
]
TEMPLATE = (
    "{{ tools | tojson if tools else '' }}{% for t in messages %}<|im_start|>{{ t.role }} {{ t.content }}"
    "{{ t.tool_calls | tojson if t.tool_calls else '' }}<|im_end|>{% endfor %}"
)


def convert(*words: object) -> None:
    """Run the command, which must succeed."""
    assert main(["data", "convert", *map(str, words)]) == 0


def text_config(path: Path, *words: str) -> Config:
    """Return a config that trains on text."""
    cache = path.parent / f"cache-{path.name}"
    return load_config("tiny.py", [f"data.path={path}", f"data.cache_dir={cache}", *words])


def order(config: Config, count: int = 40, length: int = 16, batch: int = 1) -> str:
    """Return the hash of the first samples of both splits of a config."""
    data, found = prepare(config, progress=lambda *_: None), hashlib.sha256()
    for split in ("train", "valid"):
        rows = data.rows(split, RowShape(length, batch, 7))  # type: ignore[arg-type]
        for name, values in sorted(rows.arrays(0, count if split == "train" else rows.rows).items()):
            found.update(f"{name} {values.shape}".encode() + values.tobytes())
    return found.hexdigest()


def write_text(path: Path) -> Path:
    """Write the documents into one file of plain text, or into the files of a folder with an image."""
    if path.suffix:
        path.write_text("".join(TEXTS))
        return path
    path.mkdir()
    for n, text in enumerate(TEXTS):
        (path / f"{n:02}.txt").write_text(text)
    (path / "picture.raw").write_bytes(b"\xff\0\1")
    return path


def write_source(path: Path) -> Path:
    """Write the documents in the format of the ending."""
    import datasets
    import pyarrow.parquet

    lines = "".join(json.dumps({"text": text, "n": n}) + "\n" for n, text in enumerate(TEXTS)).encode()
    table = pyarrow.table({"text": TEXTS, "n": list(range(len(TEXTS)))})
    match path.suffix:
        case ".jsonl":
            path.write_bytes(lines)
        case ".gz":
            path.write_bytes(gzip.compress(lines))
        case ".zst":
            zstandard = pytest.importorskip("zstandard")
            path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(lines))
        case ".parquet":
            pyarrow.parquet.write_table(table, path)
        case ".arrow":
            with pyarrow.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        case ".tfrecord":
            path.write_bytes(b"".join(framed(encoded({"text": text})) for text in TEXTS))
        case ".arrayrecord":
            module = pytest.importorskip("array_record.python.array_record_module")
            writer = module.ArrayRecordWriter(str(path), "group_size:1")
            for text in TEXTS:
                writer.write(encoded({"text": text}))
            writer.close()
        case _:
            datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(path))
    return path


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
@pytest.mark.parametrize("name", ["notes.txt", "notes"])
def test_plain_text_trains_on_the_same_samples(
    name: str, tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_text(tmp_path / name)
    words = (f"data.tokenizer={tokenizer}", "data.vocab_size=300")
    wanted = order(text_config(source, *words))
    if tokenizer == "bpe":  # records train a tokenizer on the held-out documents too
        words = (f"data.tokenizer={next(tmp_path.glob('cache-*/*/tokenizer.json'))}",)
    for ending in ENDINGS:
        convert(source, f"--to={tmp_path}/out{ending}")
        assert order(text_config(tmp_path / f"out{ending}", *words)) == wanted
    assert ("files that are not text are left out: picture.raw" in capsys.readouterr().out) == (
        name == "notes"
    )


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".arrow", ".tfrecord",
                                    ".arrayrecord", ""])  # fmt: skip
def test_records_of_every_format_train_on_the_same_samples(ending: str, tmp_path: Path) -> None:
    source = write_source(tmp_path / f"source{ending}")
    wanted = order(text_config(source, "data.tokenizer=bytes"))
    for to in ENDINGS:
        made = tmp_path / f"out{to}"
        convert(source, f"--to={made}")
        assert list(documents(made)) == TEXTS
        assert order(text_config(made, "data.tokenizer=bytes")) == wanted


@pytest.mark.parametrize("ending", ENDINGS)
def test_lines_are_documents_if_asked(ending: str, tmp_path: Path) -> None:
    source = write_text(tmp_path / "notes.txt")
    made = tmp_path / f"out{ending}"
    convert(source, f"--to={made}", "--document=line")
    wanted = order(text_config(source, "data.tokenizer=bytes", "data.document=line"))
    assert order(text_config(made, "data.tokenizer=bytes")) == wanted


def test_conversations_train_on_the_same_samples(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    config = tmp_path / "tokenizer" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": TEMPLATE}))
    made = [write_jsonl(tmp_path / "chat.jsonl", CHATS)]
    for ending in (*ENDINGS[::-1], ".parquet", ".jsonl"):  # each file is converted from the one before
        made.append(tmp_path / f"out{len(made)}{ending}")
        convert(made[-2], f"--to={made[-1]}")
    every = "data.loss_on=all"
    assert len({order(chat_config(tmp_path, path, every), 30, 256) for path in made}) == 1
    convert(made[0], made[2], f"--to={tmp_path}/both.arrow")
    assert len(list(format_of(tmp_path / "both.arrow").objects(tmp_path / "both.arrow"))) == 2 * len(CHATS)  # type: ignore[misc]


def test_pairs_train_on_the_same_samples(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    pairs: list[dict[str, object]] = [
        {"prompt": f"Is {n} odd?", "chosen": "yes" * n, "rejected": "no" * n} for n in range(1, 40)
    ]
    made = [write_jsonl(tmp_path / "pairs.jsonl", pairs)]
    for ending in ENDINGS:
        made.append(tmp_path / f"out{ending}")
        convert(made[0], f"--to={made[-1]}")
    words = ("loss.kind=orpo", "train.seq_len=128", "train.logical_shards=2")
    assert len({order(chat_config(tmp_path, path, *words), 30, 128, 2) for path in made}) == 1


def test_ids_stay_in_order(tmp_path: Path) -> None:
    ids = np.random.default_rng(1).integers(0, 60000, 150_000)
    ids.astype("<u2").tofile(tmp_path / "a.u16")
    np.save(tmp_path / "a.npy", ids.astype("<u4"))
    write_indexed(tmp_path / "a", [ids[:10].tolist(), ids[10:30].tolist()])
    write_records(tmp_path / "b.tfrecord", [ids[:9].tolist(), ids[9:12].tolist()])
    for name, wanted in (("a.u16", ids), ("a.npy", ids), ("a.bin", ids[:30]), ("b.tfrecord", ids[:12])):
        for ending in ENDINGS:
            made = tmp_path / f"{name}{ending}"
            convert(tmp_path / name, f"--to={made}")
            found = list(rows(made))
            assert np.array_equal(np.concatenate(found), wanted)
            if name == "b.tfrecord":
                assert [row.size for row in found] == [9, 3]
            if name == "a.bin":
                assert [row.size for row in found] == [10, 20]


def test_ids_train_on_the_same_samples(tmp_path: Path) -> None:
    ids = np.random.default_rng(3).integers(0, 100, 70_000)
    ids.astype("<u2").tofile(tmp_path / "a.u16")
    wanted = order(config_of("ids", tmp_path / "a.u16"), 60, 8)
    for ending in ENDINGS:
        convert(tmp_path / "a.u16", f"--to={tmp_path}/out{ending}")
        assert order(config_of("ids", tmp_path / f"out{ending}"), 60, 8) == wanted


def test_features_train_on_the_same_samples(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    for name, count in (("train", 12), ("valid", 8)):
        lines = [
            {
                "input_ids": draw.integers(1, 99, 8).tolist(),
                "attention_mask": [1] * 8,
                "labels": [-100, *range(7)],
            }
            for _ in range(count)
        ]
        write_jsonl(tmp_path / f"{name}.jsonl", lines)  # type: ignore[arg-type]
    found = set()
    for ending in ENDINGS:
        for name in ("train", "valid"):
            convert(tmp_path / f"{name}.jsonl", f"--to={tmp_path}/out-{name}{ending}")
    for start, ending in (("", ".jsonl"), *(("out-", ending) for ending in ENDINGS)):
        words = (f"data.eval_path={tmp_path}/{start}valid{ending}",)
        found.add(order(config_of("features", tmp_path / f"{start}train{ending}", *words), 12, 8))
    assert len(found) == 1


def test_other_programs_read_the_tables(tmp_path: Path) -> None:
    import datasets
    import pyarrow
    from pyarrow import feather, parquet

    source = write_jsonl(tmp_path / "chat.jsonl", CHATS)
    for ending in (".parquet", ".arrow"):
        convert(source, f"--to={tmp_path}/out{ending}")
    tables = [parquet.read_table(tmp_path / "out.parquet"), feather.read_table(tmp_path / "out.arrow")]
    with pyarrow.ipc.open_file(tmp_path / "out.arrow") as reader:
        tables.append(reader.read_all())
    for table in tables:
        assert table.column_names == [
            "messages",
            "source",
            "score",
            "tools",
            "prompt",
            "completion",
            "system",
        ]
        assert table.schema.field("score").type == pyarrow.float64()
        assert table.column("messages")[0].as_py()[0]["content"] == "What time?"
    for kind in ("parquet", "arrow"):
        found = datasets.load_dataset(
            kind, data_files=f"{tmp_path}/out.{kind}", split="train", cache_dir=str(tmp_path / "hf")
        )
        assert found[1]["messages"][0]["content"] == "Be brief."
        assert len(found) == len(CHATS)


def test_a_folder_of_splits_gives_one_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "validation"):
        write_jsonl(tmp_path / "data" / f"{split}.jsonl", [{"text": f"{split} {n}"} for n in range(3)])
    for split, count in (("train", 3), ("validation", 3), ("all", 6)):
        convert(tmp_path / "data", f"--to={tmp_path}/{split}.jsonl", f"--split={split}")
        assert len(list(documents(tmp_path / f"{split}.jsonl"))) == count
    assert "left out: validation.jsonl; --split=all converts them too" in capsys.readouterr().out
    assert main(["data", "convert", f"{tmp_path}/data", f"--to={tmp_path}/x.jsonl", "--split=test"]) == 2
    assert "--split: expected a split" in capsys.readouterr().err


def test_kept_keys_and_repeated_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"text": "a", "n": 1}, {"text": "b", "n": "x"}])
    for name in ("one", "two"):
        convert(f"--from={source}", f"--to={tmp_path}/{name}.parquet", "--keep=text")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    digest = hashlib.sha256((tmp_path / "one.parquet").read_bytes()).hexdigest()
    assert (
        f"2 records, {(tmp_path / 'one.parquet').stat().st_size:,} bytes, SHA-256 {digest}"
        in capsys.readouterr().out
    )


def test_columns_without_a_json_type_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet

    table = pyarrow.table({"text": ["a"], "image": [b"\xff"], "day": pyarrow.array([1], pyarrow.date32())})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", f"--to={tmp_path}/b.arrow")
    assert "note     columns without a JSON type are left out: image, day\n" in capsys.readouterr().out
    assert format_of(tmp_path / "b.arrow").objects is not None
    convert(tmp_path / "a.parquet", f"--to={tmp_path}/c.jsonl", "--keep=text")
    assert "left out" not in capsys.readouterr().out
    assert (tmp_path / "c.jsonl").read_text() == '{"text": "a"}\n'
