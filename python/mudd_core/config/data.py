"""Fields of the data: text or ids, readers, sequences and their order."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config.fields import opt
from mudd_core.config.pipelines import PIPELINES, listed

_SEEDS = 2**63 - 1
_SHUFFLED = listed((one for one in PIPELINES.values() if one.shuffles), "and")

# File formats: data/formats/<name>.py reads each. A file with an unknown suffix is tried in this order.
FORMATS = ("text", "jsonl", "parquet", "arrow", "tfrecord", "arrayrecord", "megatron", "tokens")


@dataclass(frozen=True)
class DataConfig:
    """Text or ids, tokenizer, sequences and their order, and the token cache."""

    path: str = opt(
        "",
        "file, folder, glob or URL, or several separated by commas; empty = the sources of Python's standard library",
    )
    tokenizer: str = opt(
        "bpe",
        "bpe = trained once on the corpus; bytes; or a file (tokenizer.json, *.model of sentencepiece), its folder, "
        "or a name of the Hugging Face hub",
    )
    vocab_size: int = opt(4096, "size of the trained bpe vocabulary, end-of-text included", "tokens", low=257)
    cache_dir: str = opt("", "folder of the token caches; empty = runs/cache", free=True)
    recipe_text: str = opt(
        "",
        "data set that the recipe of this config was written for; a run on other text prints a note",
        free=True,
    )
    recipe_tokenizer: str = opt(
        "",
        "tokenizer that the recipe of this config was written for; a run with another one prints a note",
        free=True,
    )
    pipeline: str = opt(
        "text",
        f"rule that turns documents or records into sequences: {', '.join(PIPELINES)}, or "
        "FILE.py:NAME, your own reader",
        later=True,
    )
    format: str = opt(
        "auto",
        "format of the files; auto = by their ending, then their first bytes",
        choices=("auto", *FORMATS),
        later=True,
    )
    eval_path: str = opt(
        "",
        "validation files, in the form of data.path; empty = the pipeline holds out some documents",
        later=True,
    )
    eval_match: str = opt(
        "",
        "files whose path contains this string are used for validation instead of training; empty = none",
        later=True,
    )
    dataset: str = opt(
        "", "data set of the Hugging Face hub, looked up on this machine; empty = none", later=True
    )
    dataset_config: str = opt("", "configuration of that data set", later=True)
    split: str = opt(
        "train",
        "split of that data set, or of a folder whose files are named after splits; all = every file of a folder",
        free=True,
        later=True,
    )
    column: str = opt("text", "column or JSON key that contains the text", later=True)
    document: str = opt(
        "auto",
        "plain text: one document is a file (file), a part of about 1/256 of a file (piece) or a line (line); auto: "
        "file, or piece for a single file",
        choices=("auto", "file", "piece", "line"),
        later=True,
    )
    template: str = opt(
        "auto",
        "chat: auto = the chat template of the tokenizer's folder; chatml; or the file of a Jinja template",
        later=True,
    )
    loss_on: str = opt(
        "assistant",
        "chat: turns that contribute to the loss: all of the assistant, only its last one, or all turns",
        choices=("assistant", "last", "all"),
        later=True,
    )
    too_long: str = opt(
        "drop",
        "chat: examples of more than train.seq_len + 1 tokens: drop, truncate after the system turn, or fail",
        choices=("drop", "cut", "fail"),
        later=True,
    )
    bad_records: str = opt(
        "fail",
        "records that cannot be read (a line that is not JSON, a null): stop with an error, or drop "
        "and count them",
        choices=("fail", "drop"),
        later=True,
    )
    bad_examples: str = opt(
        "fail",
        "chat: examples without an answer, or with an ambiguous loss mask: stop with an error, or "
        "drop them with a warning",
        choices=("fail", "drop"),
        later=True,
    )
    seed: int = opt(-1, "seed of the data order; -1 = train.seed", low=-1, high=_SEEDS, later=True)
    shuffle: str = opt(
        "auto",
        f"shuffle the sequences; auto = on for {_SHUFFLED}",
        choices=("auto", "on", "off"),
        later=True,
    )
    buffer: int = opt(
        0,
        "size of the shuffle buffer, in records or blocks; 0 = the default of the pipeline",
        "rows",
        low=0,
        later=True,
    )
    held_batch: int = opt(
        0,
        "rows: documents per held-out batch (100 batches for validation, 100 for test); 0 = train.batch_size",
        "documents",
        low=0,
        later=True,
    )
    workers: int = opt(
        1,
        "pack: number of streams that the data order interleaves; data.cache=stream: number of "
        "processes that tokenize",
        "workers",
        low=0,
        high=256,
        later=True,
    )
    files_per_group: int = opt(
        0, "number of files that are read as one group; 0 = all", "files", low=0, later=True
    )
    epochs: int = opt(0, "number of passes over the data; 0 = no limit", "epochs", low=0, later=True)
    zero_loss: bool = opt(False, "pile: id 0 is a target like any other id", later=True)
    repeat_batch: bool = opt(False, "repeat the first batch at every step", later=True)
    retries: int = opt(
        5,
        "number of retries after a file of a batch is lost; after the last one the run saves and "
        "exits with code 74",
        "times",
        low=0,
        free=True,
    )
    cache: str = opt(
        "auto",
        "full: tokenize everything first; stream: tokenize ahead of the training; auto = stream above 2 GiB",
        choices=("auto", "full", "stream"),
        free=True,
    )


@dataclass(frozen=True)
class HubConfig:
    """The Hugging Face hub."""

    online: bool = opt(False, "look up names over the network if they are not on this machine", free=True)


@dataclass(frozen=True)
class StorageConfig:
    """Access to buckets."""

    map: str = opt(
        "",
        "mounted URL prefixes with their folders, such as gs://bucket=/mnt/bucket, separated by commas",
        free=True,
    )
