"""Fields of the data: text or ids, readers, sequences and their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from mudd_core.config.fields import opt
from mudd_core.config.mix import MIX, PHASES, SOURCES, mapping_text, settled
from mudd_core.config.pipelines import PIPELINES, listed

_SEEDS = 2**63 - 1
_SHUFFLED = listed((one for one in PIPELINES.values() if one.shuffles), "and")

# File formats: data/formats/<name>.py reads each. A file with an unknown suffix is tried in this order.
FORMATS = ("text", "jsonl", "parquet", "arrow", "tfrecord", "arrayrecord", "megatron", "tokens")

DocumentRule = Literal["auto", "file", "piece", "line"]  # of data.document


@dataclass(frozen=True)
class DataConfig:
    """Text or ids, tokenizer, sequences and their order, and the token cache."""

    path: str = opt(
        "",
        "file, folder, glob or URL, or several separated by commas; empty = the source files of "
        "Python's standard library",
    )
    tokenizer: str = opt(
        "bpe",
        "bpe = train one on the corpus; bytes = one token per byte; or a file (tokenizer.json, "
        "*.model of sentencepiece), its folder, or a name on the Hugging Face hub",
    )
    vocab_size: int = opt(
        4096, "size of the trained bpe vocabulary, with the end-of-text token", "tokens", low=257
    )
    cache_dir: str = opt("", "folder of the token caches; empty = runs/cache", free=True)
    recipe_text: str = opt(
        "",
        "data set for which this config was written; a run on other text prints a note",
        free=True,
    )
    recipe_tokenizer: str = opt(
        "",
        "tokenizer for which this config was written; a run with another one prints a note",
        free=True,
    )
    pipeline: str = opt(
        "text",
        f"rule that turns documents or records into sequences: {', '.join(PIPELINES)}, or "
        "FILE.py:NAME for your own reader",
        later=True,
    )
    format: str = opt(
        "auto",
        "format of the files; auto = detect it from the file extension, else from the first bytes",
        choices=("auto", *FORMATS),
        later=True,
    )
    eval_path: str = opt(
        "",
        "validation files, written like data.path; empty = the pipeline holds out some documents",
        later=True,
    )
    eval_match: str = opt(
        "",
        "files whose path contains this string are used for validation instead of training; empty = none",
        later=True,
    )
    dataset: str = opt(
        "",
        "name of a Hugging Face data set on this machine, or on the hub if hub.online=true; empty = none",
        later=True,
    )
    dataset_config: str = opt("", "configuration of data.dataset", later=True)
    split: str = opt(
        "train",
        "split of data.dataset, or of a folder whose files are named after splits; all = every file "
        "of a folder",
        free=True,
        later=True,
    )
    column: str = opt("text", "column or JSON key that contains the text", later=True)
    document: str = opt(
        "auto",
        "plain text: a document is a whole file (file), about 1/256 of a file (piece) or a line "
        "(line); auto = file, or piece if there is only one file",
        choices=get_args(DocumentRule),
        later=True,
    )
    template: str = opt(
        "auto",
        "chat: auto = the chat template in the tokenizer's folder; chatml = ChatML; or the path of a "
        "Jinja template",
        later=True,
    )
    loss_on: str = opt(
        "assistant",
        "chat: turns that contribute to the loss; assistant = all turns of the assistant, last = "
        "only its last turn, all = every turn",
        choices=("assistant", "last", "all"),
        later=True,
    )
    too_long: str = opt(
        "drop",
        "chat: treatment of examples with more than train.seq_len + 1 tokens; cut = remove the "
        "oldest tokens after the system turn",
        choices=("drop", "cut", "fail"),
        later=True,
    )
    bad_records: str = opt(
        "fail",
        "treatment of unreadable records, such as a line that is not JSON; fail = stop with an "
        "error, drop = skip and count them",
        choices=("fail", "drop"),
        later=True,
    )
    bad_examples: str = opt(
        "fail",
        "chat: treatment of examples without an answer or with an ambiguous loss mask; fail = stop "
        "with an error, drop = skip them with a warning",
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
        "records",
        low=0,
        later=True,
    )
    held_batch: int = opt(
        0,
        "data.pipeline=rows: documents per held-out batch; validation and test have 100 batches "
        "each; 0 = train.batch_size",
        "documents",
        low=0,
        later=True,
    )
    workers: int = opt(
        1,
        "data.pipeline=pack: number of streams that the data order interleaves; data.cache=stream: "
        "number of processes that tokenize",
        "workers",
        low=0,
        high=256,
        later=True,
    )
    files_per_group: int = opt(
        0,
        "data.pipeline=pile: number of files per group; no batch spans two groups; 0 = one group of "
        "all files",
        "files",
        low=0,
        later=True,
    )
    epochs: int = opt(0, "number of passes over the data; 0 = no limit", "epochs", low=0, later=True)
    zero_loss: bool = opt(
        False, "data.pipeline=pile: targets with id 0 also contribute to the loss", later=True
    )
    repeat_batch: bool = opt(False, "repeat the first batch at every step", later=True)
    retries: int = opt(
        5,
        "number of retries if a data file cannot be read; after the last one the run saves and exits "
        "with code 74",
        "retries",
        low=0,
        free=True,
    )
    cache: str = opt(
        "auto",
        "full = tokenize everything first; stream = tokenize during training; auto = stream if the "
        "text has more than 2 GiB",
        choices=("auto", "full", "stream"),
        free=True,
    )
    mix: str = opt(
        "",
        "weights of the sources of a mixture, such as web:0.7,code:0.3; empty = one source, data.path",
        later=True,
    )
    mix_phases: str = opt(
        "",
        "other weights after a step, such as 2000:web:0.5,code:0.5;8000:code:1; on a resume, phases after "
        "the saved step may change",
        later=True,
    )
    mix_until: str = opt(
        "steps",
        "end of a run on a mixture: steps = train.steps, and each source is repeated; first = the end of the "
        "first source, all = when each source was read to its end",
        choices=("steps", "first", "all"),
        later=True,
    )
    sources: str = opt(
        "",
        "options of the sources of data.mix, such as web.path=data/web code.path=src; "
        "data.sources.NAME.OPTION=VALUE sets one",
        later=True,
    )


def with_strings(data: DataConfig) -> DataConfig:
    """Return the data with mappings of data.mix, data.mix_phases and data.sources as strings, and sorted sources."""

    def text(path: str, value: str) -> str:
        return mapping_text(path, value) if isinstance(value, Mapping) else value

    sources = text(SOURCES, data.sources)
    return replace(
        data,
        mix=text(MIX, data.mix),
        mix_phases=text(PHASES, data.mix_phases),
        sources=settled(sources) if isinstance(sources, str) else sources,
    )


@dataclass(frozen=True)
class HubConfig:
    """The Hugging Face hub."""

    online: bool = opt(
        False, "fetch data sets and tokenizers from the hub if they are not on this machine", free=True
    )


@dataclass(frozen=True)
class StorageConfig:
    """Access to buckets."""

    map: str = opt(
        "",
        "folders in which buckets are mounted, such as gs://bucket=/mnt/bucket, separated by commas",
        free=True,
    )
