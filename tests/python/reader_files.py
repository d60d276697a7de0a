"""The files that pages expect of a reader: small documents, data sets, tokenizers, weights with the typed names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet

from document_sizes import MIXTRAL, texts, write_lines, write_records
from hf_models import make
from hub_cache import put_tokenizer
from id_cases import write_indexed
from mudd_core.data.tokenizers.bpe_training import train_bpe
from tiny_run import write_text

VARIABLES = {"RUN_NAME": "named", "DATASET_PATH": "DATA"}  # a path that a page leaves to the reader


def write_files(folder: Path) -> None:
    """Write all of them."""
    for name in ("my_text", "corpus", "PATH"):
        (folder / name).mkdir()
        write_text(folder / name)
    write_records(folder / "DATA")
    _write_documents(folder)
    words = " ".join(texts(200)).encode()
    for name in ("gpt2", "EleutherAI/gpt-neox-20b"):
        put_tokenizer(folder / "hub", name, train_bpe([words], 1, 300))
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_bytes(train_bpe([words], 1, 257))
    (folder / "tiny.json").write_text(json.dumps(MIXTRAL | {"max_position_embeddings": 128}))
    (folder / "prompts.txt").write_text("def \nimport \n")
    make("gpt2", folder / "path" / "to" / "gpt2")
    shutil.copy(folder / "tokenizer" / "tokenizer.json", folder / "path" / "to" / "gpt2")


def _write_documents(folder: Path) -> None:
    train = texts(60)
    write_lines(folder / "a.jsonl", train)
    for name in ("train", "validation"):
        write_lines(folder / "data" / "openwebtext_arrayrecord" / f"{name}.jsonl", train)
    (folder / "openwebtext" / "train").mkdir(parents=True)
    table = pyarrow.table({"text": train})
    pyarrow.parquet.write_table(table, folder / "openwebtext" / "train" / "data-00000-of-00001.parquet")
    write_indexed(folder / "pile", [[1 + n % 50 for n in range(count)] for count in (2100, 4200, 700)])
    for split, count in (("train", 16), ("test", 16)):
        ids = [[1 + (n + row) % 50 for n in range(256)] for row in range(count)]
        columns = {"input_ids": ids, "attention_mask": [[1.0] * 256] * count, "labels": ids}
        (folder / "dataset").mkdir(exist_ok=True)
        pyarrow.parquet.write_table(
            pyarrow.table(columns), folder / "dataset" / f"wikitext.{split}-00000-of-00001"
        )


def write_c4(folder: Path) -> None:
    """Write c4 and c4_val. Other pages must not have them: a folder c4 shadows the data set of that name."""
    for number in (768, 769):
        write_lines(folder / "c4" / f"c4-train.{number:05d}-of-01024.json", texts(60))
    write_lines(folder / "c4_val" / "c4-validation_24567exp.json", texts(12, 6))
