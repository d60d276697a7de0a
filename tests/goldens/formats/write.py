"""Write small files of every format with the stock libraries, and expected.json with their contents.

Run once, in an environment with `./run setup seeds hub` and `pip install tfrecord torch==2.13.0`. The versions of the
libraries are in expected.json.
"""

from __future__ import annotations

import gzip
import io
import json
from importlib import metadata
from pathlib import Path

import array_record.python.array_record_module as array_record
import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece
import tokenizers
import zstandard
from tfrecord.writer import TFRecordWriter

HERE = Path(__file__).parent
PACKAGES = ("pyarrow", "array_record", "tfrecord", "sentencepiece", "tokenizers", "datasets", "zstandard")
TEXTS = ["The river é", "", "two\nlines of a text", "你好 🌊", "x" * 300]
IDS = [[1, 2, 300], [0, 70000, 2**40], [5], list(range(40)), [7, 7]]


def write_tables() -> None:
    table = pa.table({"text": TEXTS, "input_ids": IDS})
    pq.write_table(table, HERE / "a.parquet", row_group_size=2, write_page_checksum=True)
    pq.write_table(table, HERE / "plain.parquet", compression="none", use_dictionary=False, version="1.0")
    with pa.OSFile(str(HERE / "stream.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    with pa.OSFile(str(HERE / "file.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    datasets.Dataset(table).save_to_disk(str(HERE / "saved"), num_shards=2)


def write_records() -> None:
    writer = TFRecordWriter(str(HERE / "a.tfrecord"))
    for text, ids in zip(TEXTS, IDS, strict=True):
        writer.write({"text": (text.encode(), "byte"), "input_ids": (ids, "int")})
    writer.close()
    data, at, records = (HERE / "a.tfrecord").read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        records.append(data[at + 12 : at + 12 + size])
        at += 16 + size
    for name, options in (
        ("a.arrayrecord", "group_size:1"),
        ("grouped.arrayrecord", "group_size:3,uncompressed"),
    ):
        packed = array_record.ArrayRecordWriter(str(HERE / name), options)
        for record in records:
            packed.write(record)
        packed.close()


def write_lines() -> None:
    lines = "".join(
        json.dumps({"text": t, "input_ids": i}) + "\n" for t, i in zip(TEXTS, IDS, strict=True)
    ).encode()
    (HERE / "a.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
    (HERE / "a.jsonl.zst").write_bytes(zstandard.compress(lines))


def write_tokenizers() -> dict[str, list[list[int]]]:
    corpus = [f"{text} river banks and fields number {n}" for n in range(40) for text in TEXTS[:4]]
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.normalizer = tokenizers.normalizers.NFC()
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        corpus,
        tokenizers.trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet
        ),
    )
    library.save(str(HERE / "tokenizer.json"), pretty=False)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        vocab_size=310,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        minloglevel=2,
        num_threads=1,
    )
    (HERE / "tokenizer.model").write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    asked = [*TEXTS, "an end<|endoftext|>inside"]
    return {
        "tokenizer.json": [library.encode(text).ids for text in asked],
        "tokenizer.model": [pieces.encode(text) for text in asked],
    }


write_tables()
write_records()
write_lines()
expected = {
    "versions": {name: metadata.version(name) for name in PACKAGES},
    "texts": TEXTS,
    "ids": IDS,
    "encoded": write_tokenizers(),
}
(HERE / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
