"""Fuzz targets for the Python readers: each reads bytes, and returns or raises only a documented error."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from format_readers import frame_again, run_format
from hdf5_readers import run_cache, run_cache_fields, run_teacher, run_teacher_fields
from model_readers import run_adapter, run_batch, run_settings, run_weights
from mutation import change_bytes, change_json
from run_readers import (
    change_lines,
    run_json,
    run_manifest,
    run_metrics,
    run_provenance,
    run_record,
    run_yaml,
    seal_manifest,
)
from tokenizer_readers import (
    run_gguf_sentencepiece,
    run_gguf_tokenizer,
    run_sentencepiece,
    run_tokenizer,
    run_tokenizer_folder,
)

from mudd_core.base.errors import FormatError, UserError

Change = Callable[[bytes, bytes, random.Random], bytes]
WRONG_VALUES = (ValueError, TypeError)  # errors of a caller's mistake; FormatError is not among them


@dataclass(frozen=True)
class Target:
    """A fuzz target. run may raise only `refusals`; repair updates the checksums of a mutated input."""

    run: Callable[[bytes, Path], None]
    change: Change = change_json
    refusals: tuple[type[Exception], ...] = (FormatError, UserError)
    repair: Callable[[bytes], bytes] | None = None


TARGETS = {
    "manifest": Target(run_manifest, repair=seal_manifest),
    "json": Target(run_json),
    "tokenizer": Target(run_tokenizer),
    "tokenizer_folder": Target(run_tokenizer_folder),
    "sentencepiece": Target(run_sentencepiece, change_bytes),
    "cache": Target(run_cache, change_bytes),
    "cache_fields": Target(run_cache_fields),
    "settings": Target(run_settings, refusals=(ValueError,)),
    "metrics": Target(run_metrics, change_lines),
    "provenance": Target(run_provenance, change_json),
    "record": Target(run_record, change_lines, refusals=(UserError,)),
    "batch": Target(run_batch, refusals=WRONG_VALUES),
    "weights": Target(run_weights),
    "jsonl": Target(run_format("jsonl"), change_lines),
    "tfrecord": Target(run_format("tfrecord"), change_bytes, repair=frame_again),
    "indexed": Target(run_format("idx"), change_bytes),
    "npy": Target(run_format("npy"), change_bytes),
    "arrow": Target(run_format("arrow"), change_bytes),
    "parquet": Target(run_format("parquet"), change_bytes),
    "arrayrecord": Target(run_format("arrayrecord"), change_bytes),
    "yaml": Target(run_yaml, change_bytes, refusals=(UserError,)),
    "teacher": Target(run_teacher, change_bytes),
    "teacher_fields": Target(run_teacher_fields),
    "gguf_tokenizer": Target(run_gguf_tokenizer, refusals=(ValueError, FormatError)),
    "gguf_sentencepiece": Target(run_gguf_sentencepiece, change_bytes, refusals=(ValueError, FormatError)),
    "adapter": Target(run_adapter),
}
