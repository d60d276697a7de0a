"""Convert files of one format to another. The output appears when it is complete.

--to=NAME.parquet, NAME.jsonl or NAME.arrow writes one file, which trains like SOURCE. --to=DIR writes files for other
programs:

    python3 launch.py data convert my_text --to=my_text.parquet
    python3 launch.py data convert openwebtext --to=tf         # to train_data_00000.tfrecord
    python3 launch.py data convert 'tf/*.tfrecord' --to=ar     # TFRecord to ArrayRecord
    python3 launch.py data convert pile.bin --to=pile          # .bin/.idx to pile.tfrecord.b0
    python3 launch.py data convert a.jsonl --to=ids --format=megatron --tokenizer=gpt2
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import typed_program
from mudd_core.config.arguments import argument
from mudd_core.config.data import DocumentRule
from mudd_core.config.tool_arguments import ToolArguments, fraction, whole_number
from mudd_core.tools.convert.items import TARGETS
from mudd_core.tools.convert.one_file import PLACE, WRITERS

_ENDING = re.compile(r"\.[A-Za-z]{2,8}")  # of a file; a folder may be called pile.v2
_OF_FOLDERS = ("--format", "--shards", "--split-valid", "--tokenizer", "--length", "--column")
_OF_FILES = ("--keep", "--split", "--document")


@dataclass(frozen=True)
class Asked:
    """The arguments of the command; the help describes the options.

    typed: the arguments as the user wrote them, for messages.
    """

    sources: tuple[str, ...]
    target: Path
    format: str | None
    shards: int
    split_valid: float
    column: str
    tokenizer: str
    length: int
    keep: tuple[str, ...]
    split: str
    document: DocumentRule
    typed: tuple[str, ...]

    @property
    def to_file(self) -> bool:
        """True if --to names one file; False for a folder."""
        return self.target.suffix in WRITERS and not self.target.is_dir()

    @property
    def path(self) -> str:
        """All sources as one path."""
        return ",".join(self.sources)

    @property
    def as_lines(self) -> str:
        """The same command with jsonl as the target."""
        rest = list(self.typed)
        for at, word in enumerate(self.typed):
            given = argument(word)
            if given.option in ("--to", "--output_path"):
                follows = given.value is None
                file = _free(Path(self.typed[at + 1] if given.value is None else given.value), ".jsonl")
                rest[at : at + 1 + follows] = [f"--to={file}"]
        return shlex.join([*typed_program(), "data", "convert", *rest])


def _free(target: Path, ending: str) -> Path:
    """Return the name of a file with this ending next to the target that does not exist yet."""
    found = target.with_suffix(ending)
    while found.expanduser().exists():
        found = found.with_name(f"{found.stem}_converted{ending}")
    return found


def parsed(words: Sequence[str]) -> Asked:
    """Return the arguments; raise UserError for a missing one, and for an option that the target does not use."""
    parser = _parser()
    found = parser.options(words)
    sources = (*found.sources, *([found.source] if found.source else []))
    if not sources:
        raise _missing("SOURCE", ("my_text", *words))
    if not found.target:
        file = _free(Path(f"{Path(sources[0].rstrip('/*')).stem or 'data'}.parquet"), ".parquet")
        raise _missing("--to", (*words, f"--to={file}"))
    keep = tuple(name for name in (found.keep or "").split(",") if name)
    if found.keep is not None and not keep:
        parser.error("--keep: expected names of keys, such as --keep=messages, got none")
    asked = Asked(
        sources,
        Path(found.target).expanduser().absolute(),
        found.format,
        found.shards,
        found.split_valid,
        found.column,
        found.tokenizer,
        found.length,
        keep,
        found.split,
        next(rule for rule in get_args(DocumentRule) if rule == found.document),
        tuple(words),
    )
    _check_target(asked, is_folder=found.target.endswith("/"))
    return asked


def _missing(name: str, arguments: Sequence[str]) -> UserError:
    """Return the error of a missing argument. arguments: all of them, with an example of the missing one."""
    line = shlex.join([*typed_program(), "data", "convert", *arguments])
    return UserError(f"[data convert] {name} is missing; type: {line}")


def _check_target(asked: Asked, is_folder: bool) -> None:
    """Raise UserError for an unknown ending of a file, and for an option that the target does not use."""
    ending, names = asked.target.suffix, ", ".join(WRITERS)
    if not (asked.to_file or asked.format or is_folder or asked.target.is_dir()) and _ENDING.fullmatch(
        ending
    ):
        raise UserError(
            f"{PLACE}: expected a file that ends in {names}, or a folder, got {asked.target.name!r}; for a folder of "
            "this name add / to it"
        )
    given = {argument(word).option for word in asked.typed}
    others = [name for name in (_OF_FOLDERS if asked.to_file else _OF_FILES) if name in given]
    if others:
        what = "one file" if asked.to_file else "a folder"
        raise UserError(
            f"{PLACE}: {asked.target.name!r} is {what}, for which {others[0]} has no meaning; leave it out"
        )


def _parser() -> ToolArguments:
    parser = ToolArguments("data convert", __doc__ or "")
    add = parser.add_argument
    add(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="files, folders or globs in any format that a training reads",
    )
    add("--from", "--input_pattern", dest="source", metavar="PATH", help="another way to name a source")
    add("--to", "--output_path", dest="target", default="", metavar="PATH", help="output file or folder")
    add("--keep", metavar="A,B", help="file: the keys of records to keep; default all")
    add("--split", default="train", metavar="NAME", help="file: the split of a folder; all = every file")
    add(
        "--document",
        choices=get_args(DocumentRule),
        default="auto",
        help="file: documents of plain text, data.document",
    )
    add("--format", choices=TARGETS, help="folder: output format; default: chosen by the input format")
    shards = "folder: number of output files per split; default: as in the input"
    add("--shards", type=whole_number(0), default=0, metavar="N", help=shards)
    valid = "folder: fraction of the documents for validation, selected by a hash"
    add("--split-valid", type=fraction, default=0.0, metavar="P", help=valid)
    add("--column", default="text", metavar="NAME", help="folder: column that contains the text")
    add("--tokenizer", default="", metavar="NAME", help="folder: tokenizer for --format=megatron")
    length = "folder: token ids per record, if records contain token ids"
    add("--length", type=whole_number(2), default=2049, metavar="N", help=length)
    return parser
