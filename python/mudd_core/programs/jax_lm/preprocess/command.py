"""Write training sequences to Parquet files: overlapping windows of documents with BOS and EOS, and shifted labels.

The flags have the names of jax-lm-training's preprocessing, with dashes or underscores. Sequences keep the order of the
documents, for any number of workers. The files are renamed to their final names when all are complete.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import open_binary
from mudd_core.base.units import duration
from mudd_core.config import Config, apply_overrides, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.data import DataConfig
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data import formats
from mudd_core.data.sources.access import LOCAL, Access
from mudd_core.data.sources.hub_datasets import with_dataset
from mudd_core.programs.jax_lm.keys import PREPROCESS
from mudd_core.programs.jax_lm.preprocess.parquet import Shards
from mudd_core.programs.jax_lm.preprocess.rows import Shape, chunks_of, cores, rows_in_order
from mudd_core.programs.jax_lm.preprocess.vocabulary import Vocabulary, read_vocabulary

COLUMN = "text"
_TEXT = (".txt", ".text", ".tokens", ".raw")
_SPLITS = ("train", "test", "valid", "validation", "dev", "eval")
_RECORDS = [one for one in formats.FORMATS.values() if one.name != "text"]
_DATA = (*_TEXT, *(ending for one in _RECORDS for ending in one.endings))
_MODES = ("in_memory", "multi_threading", "multi_processing")
_MOST_SHARDS = 99_999
_FIELDS = ("hub.online", "storage.map")
_RUNNERS = ("DirectRunner", "BundleBasedDirectRunner")  # Apache Beam's runners that use only this machine


@dataclass(frozen=True)
class Source:
    """The files of a split, sorted by name."""

    files: tuple[Path, ...]

    def texts(self) -> Iterator[str]:
        """Yield the documents, file by file in their order."""
        for file in self.files:
            own = file.name.lower().endswith(_TEXT) or formats.format_of(file).name == "text"
            yield from _lines(file) if own else formats.documents(file, COLUMN)

    def count(self) -> int:
        """Count the documents; this reads all files once."""
        return sum(1 for _ in self.texts())


def find(name: str, part: str, split: str, access: Access = LOCAL) -> Source:
    """Find the files of a path, or of a split of a folder or hub dataset; raise UserError if there are none."""
    path = local(access.local(name, "[preprocess] --dataset-name"), "[preprocess] --dataset-name")
    if path.is_file():
        return Source((path,))
    if path.is_dir():
        return _in_folder(path, part, split)
    try:
        found = with_dataset(DataConfig(dataset=name, dataset_config=part, split=split), access)
    except UserError as error:
        text = str(error).replace("[data.dataset]", "[preprocess] --dataset-name:")
        raise UserError(text.replace("[data.split]", "[preprocess] --dataset-split-type:")) from None
    return Source(tuple(Path(file) for file in found.path.split(",")))


def _in_folder(path: Path, part: str, split: str) -> Source:
    folder = path / part if part and (path / part).is_dir() else path
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _is_data(file, folder))
    own = [file for file in files if split in _words(file.relative_to(folder))]
    named = any(word in _SPLITS for file in files for word in _words(file.relative_to(folder)))
    chosen = own or ([] if named else files)
    if not chosen:
        there = ", ".join(file.relative_to(folder).as_posix() for file in files[:8]) or "no data file"
        raise UserError(
            f"[preprocess] --dataset-split-type: expected a split of {folder}, got '{split}'; there are {there}"
        )
    return Source(tuple(chosen))


def _is_data(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.name.lower().endswith(_DATA)


def _words(name: Path) -> set[str]:
    """Split a file name such as wiki.train.txt, train-00000-of-00002.parquet or train/data.arrow into its parts."""
    text = name.as_posix().lower()
    for mark in "/-_":
        text = text.replace(mark, ".")
    return set(text.split("."))


def _lines(file: Path) -> Iterator[str]:
    """Yield each line, without its line break, as a document."""
    for line, offset in _raw_lines(file):
        yield _decoded(line, file, offset)


def _raw_lines(file: Path) -> Iterator[tuple[bytes, int]]:
    offset = 0
    try:
        with open_binary(file) as stream:
            for line in stream:
                yield line.rstrip(b"\r\n"), offset
                offset += len(line)
    except OSError as error:
        raise UserError(f"[preprocess] cannot read {file}: {error.strerror}") from error


def _decoded(line: bytes, file: Path, offset: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(str(file), offset + error.start, "expected UTF-8 text") from None


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
    print(f"{documents:,} documents gave {rows:,} sequences of {shape.length} tokens")
    if not rows:
        print(
            f"warning: no document has more than {shape.shortest - shape.reserved} tokens "
            "(--min-sequence-length); the files are empty",
            file=sys.stderr,
        )
    return 0


def _dashed(word: str) -> str:
    """Return the argument with dashes in its option's name; config fields, whose names have a dot, stay unchanged."""
    item = argument(word)
    if item.mark != "--" or "." in item.key:
        return word
    return f"--{item.key.replace('_', '-')}{word.removeprefix(item.option)}"


def _access(words: Sequence[str]) -> Access:
    """Return the access that the config fields allow; raise UserError for a field without effect here."""
    overrides = split_words(list(words), Config())
    for item in overrides:
        if item.path not in _FIELDS:
            raise UserError(f"[preprocess] {item.word}: expected {' or '.join(_FIELDS)}, got {item.path}")
    return Access.of(apply_overrides(Config(), overrides))


def _require_runner(name: str) -> None:
    """Raise UserError for a runner of Apache Beam that uses other machines."""
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
        help="number of Parquet files (1)",
    )
    parser.add_argument(
        "--runner", default=_RUNNERS[0], metavar="NAME", help=f"runner of Apache Beam: {_RUNNERS[0]} alone"
    )
    parser.add_argument(
        "--mask-by-position",
        action="store_true",
        help="only positions after the window are padding; by default, as in the original, every id 0 is "
        "padding, though it is a token of GPT-2",
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
    """Write all sequences; return the numbers of documents and sequences."""
    total, count = source.count(), len(shards.files)
    bar, opened, documents, made = _Bar(total), -1, 0, 0
    for chunk, rows in rows_in_order(chunks_of(source.texts(), total, count), vocabulary, shape, workers):
        while opened < chunk.shard:
            opened += 1
            shards.begin(opened)
        shards.add(rows)
        documents, made = documents + len(chunk.texts), made + len(rows)
        bar.show(documents, made)
    for shard in range(opened + 1, count):  # there are more files than documents
        shards.begin(shard)
    bar.close()
    return documents, made


class _Bar:
    """A progress bar. On a terminal one line is rewritten; elsewhere a line is printed for each tenth."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total, self._stream = total, stream or sys.stderr
        self._live = self._stream.isatty()
        self._begin, self._shown, self._drawn = time.monotonic(), 0, 0.0

    def show(self, done: int, rows: int) -> None:
        """Update the progress after more documents."""
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
        """End the rewritten line with a line break."""
        if self._live and self._drawn:
            self._stream.write("\n")
