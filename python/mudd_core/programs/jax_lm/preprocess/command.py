"""Makes training rows out of documents: overlapping windows with BOS and EOS, labels shifted by one, as Parquet files.

The flags are those of jax-lm-training's preprocessing, with dashes or underscores. Rows are in the order of the
documents, whatever the number of workers. The files get their names when all are whole.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from mudd_core.base.errors import UserError
from mudd_core.base.units import duration
from mudd_core.config import Config, apply_overrides, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data.sources.access import Access
from mudd_core.programs.jax_lm.keys import PREPROCESS
from mudd_core.programs.jax_lm.preprocess.documents import Source, find
from mudd_core.programs.jax_lm.preprocess.parquet import Shards
from mudd_core.programs.jax_lm.preprocess.pool import chunks_of, cores, rows_in_order
from mudd_core.programs.jax_lm.preprocess.rows import Shape
from mudd_core.programs.jax_lm.preprocess.vocabulary import Vocabulary, read_vocabulary

_MODES = ("in_memory", "multi_threading", "multi_processing")
_MOST_SHARDS = 99_999
_FIELDS = ("hub.online", "storage.map")
_RUNNERS = ("DirectRunner", "BundleBasedDirectRunner")  # of Apache Beam, that work on this machine


def main(words: Sequence[str]) -> int:
    """Run the command."""
    args, fields = _parser().read([_dashed(word) for word in words])
    access = _access(fields)
    _require_runner(args.runner)
    shape = Shape(
        args.max_sequence_length,
        args.min_sequence_length,
        args.num_special_token_reserved,
        args.stride,
        args.ignore_label,
        args.mask_by_position,
    )
    workers = _workers(args)
    vocabulary = read_vocabulary(args.tokenizer_model, access)
    source = find(args.dataset_name, args.dataset_sub_name, args.dataset_split_type, access)
    with Shards(args.output_path, args.num_shards, shape.length) as shards:
        documents, rows = _write(source, vocabulary, shape, shards, workers)
        shards.commit()
    for file in shards.files:
        print(file)
    print(f"{documents:,} documents gave {rows:,} rows of {shape.length} tokens")
    if not rows:
        print(
            f"warning: no document has more than {shape.shortest - shape.reserved} tokens "
            "(--min-sequence-length); the files are empty",
            file=sys.stderr,
        )
    return 0


def _dashed(word: str) -> str:
    """The argument with dashes in the name of its option; a field of the config, which has a dot, as it is."""
    item = argument(word)
    if item.mark != "--" or "." in item.key:
        return word
    return f"--{item.key.replace('_', '-')}{word.removeprefix(item.option)}"


def _access(words: Sequence[str]) -> Access:
    """What the arguments about config fields allow; UserError for a field that decides nothing here."""
    overrides = split_words(list(words), Config())
    for item in overrides:
        if item.path not in _FIELDS:
            raise UserError(f"[preprocess] {item.word}: expected {' or '.join(_FIELDS)}, got {item.path}")
    return Access.of(apply_overrides(Config(), overrides))


def _require_runner(name: str) -> None:
    """UserError for a runner of Apache Beam on other machines."""
    if name not in _RUNNERS:
        raise UserError(
            f"[preprocess] --runner: expected {' or '.join(_RUNNERS)}, got '{name}': all work is done on this machine; "
            "leave out --runner, and type --direct_num_workers=0 for a process on each core"
        )


def _parser() -> ToolArguments:
    parser = ToolArguments("preprocess", __doc__ or "", fields="hub.online=true")
    parser.usage = "%(prog)s [options]"
    for row in PREPROCESS:
        counts = isinstance(row.default, int)
        parser.add_argument(
            _dashed(f"--{row.name}"),
            type=whole_number() if counts else str,
            default=row.default,
            metavar="INT" if counts else "STR",
            help=f"{row.text} ({row.default})",
        )
    parser.add_argument(
        "--num-shards",
        type=whole_number(1, _MOST_SHARDS),
        default=1,
        metavar="INT",
        help="number of files (1)",
    )
    parser.add_argument(
        "--runner", default=_RUNNERS[0], metavar="NAME", help=f"runner of Apache Beam: {_RUNNERS[0]} alone"
    )
    parser.add_argument(
        "--mask-by-position",
        action="store_true",
        help="padding is what is behind a window; default as the original: every id 0, a token of its own in GPT-2",
    )
    return parser


def _workers(args: argparse.Namespace) -> int:
    if args.direct_running_mode not in _MODES:
        raise UserError(
            f"[preprocess] --direct_running_mode: expected one of {', '.join(_MODES)}, got '{args.direct_running_mode}'"
        )
    if not 0 <= args.direct_num_workers <= 1024:
        raise UserError(
            f"[preprocess] --direct_num_workers: expected 0 (one for each core) to 1024, got {args.direct_num_workers}"
        )
    return int(args.direct_num_workers) or cores()


def _write(
    source: Source, vocabulary: Vocabulary, shape: Shape, shards: Shards, workers: int
) -> tuple[int, int]:
    """(documents, rows) that were written."""
    total, count = source.count(), len(shards.files)
    bar, opened, documents, made = _Bar(total), -1, 0, 0
    for chunk, rows in rows_in_order(chunks_of(source.texts(), total, count), vocabulary, shape, workers):
        while opened < chunk.shard:
            opened += 1
            shards.begin(opened)
        shards.add(rows)
        documents, made = documents + len(chunk.texts), made + len(rows)
        bar.show(documents, made)
    for shard in range(opened + 1, count):  # more files than documents
        shards.begin(shard)
    bar.close()
    return documents, made


class _Bar:
    """Documents, rate and time left: rewritten in place on a terminal, elsewhere a line for each tenth."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total, self._stream = total, stream or sys.stderr
        self._live = self._stream.isatty()
        self._begin, self._shown, self._drawn = time.monotonic(), 0, 0.0

    def show(self, done: int, rows: int) -> None:
        """After some more documents."""
        now = time.monotonic()
        tenth = 10 * done // max(self._total, 1)
        if not (now - self._drawn >= 0.1 or done == self._total if self._live else tenth > self._shown):
            return
        self._drawn, self._shown = now, tenth
        rate = done / max(now - self._begin, 1e-9)
        text = (
            f"preprocess: {done:,}/{self._total:,} documents, {rows:,} rows, {rate:,.0f} documents/s, "
            f"ETA {duration((self._total - done) / rate)}"
        )
        self._stream.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line that is rewritten."""
        if self._live and self._drawn:
            self._stream.write("\n")
