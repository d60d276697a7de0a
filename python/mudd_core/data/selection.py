"""Which of the files that data.path names are data: record files without the cards, licences and images around them.

A folder without record files is a folder of text, and all of its files are data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.data.formats import FORMATS, format_of
from mudd_core.data.listing import data_files

_CARD = re.compile(
    r"readme.*|licen[sc]e.*|_.*|.*\.(png|jpe?g|gif|webp|svg|bmp|tiff?|ico)|dataset_infos\.json", re.IGNORECASE
)
_SHARD = re.compile(r"data-\d{5}-of-\d{5}\.arrow")  # as save_to_disk names them
_BY_CONTENT = ("", ".json")  # endings that do not tell records from text
_HEAD_BYTES = 4096
_SHOWN = 3


@dataclass(frozen=True)
class Selection:
    """The data among files. records: they are record files, or files of ids. notes: lines about files left out."""

    files: tuple[Path, ...]
    records: bool
    notes: tuple[str, ...] = ()


def selected(
    path: str,
    argument: str = "data.path",
    *,
    column: str = "text",
    named: str = "auto",
    ids: bool = False,
    repeats: bool = False,
) -> Selection:
    """Return the data among the files that a path names. UserError for record files and prose in one folder.

    argument: the field that gives the path. column: of the texts; empty if any JSON object will do. named: the format
    of the files, as data.format. ids: files of token ids are data too. repeats: as of data_files.
    """
    links: list[Path] = []
    files = data_files(path, argument, links=links, repeats=repeats)
    typed = {Path(part.strip()).expanduser().absolute() for part in [path, *path.split(",")]}
    found = _saved(file for file in files if file not in typed)
    cards = [file for file in found if _CARD.fullmatch(file.name)]
    kinds = {file: _kind(file, column, named, ids) for file in found if file not in cards}
    records = [file for file, kind in kinds.items() if kind == "records"]
    prose = [file for file, kind in kinds.items() if kind in ("text", "other json")]
    if prose and not [file for file in prose if kinds[file] == "text"] and not records:
        records, prose = prose, []  # nothing but JSON: a column that it lacks is named by its readers
    about_links = (f"{len(links):,} links left out, {links[0]} first",) if links else ()
    if not records:
        whole = {*found, *typed}
        return Selection(tuple(file for file in files if file in whole), False, about_links)
    if prose:
        raise UserError(_mixed(path, records, prose, argument))
    left = [file for file in found if file not in set(records)]
    notes = (f"left out, no records: {shown(left)}",) if left else ()
    kept = {*records, *(file for file in files if file in typed)}
    return Selection(tuple(file for file in files if file in kept), True, (*notes, *about_links))


def _kind(file: Path, column: str, named: str, ids: bool) -> str:
    """Return `records`, `text`, `other json` (without the column) or `binary`."""
    if named != "auto":
        return "text" if named == "text" else "records"
    one = format_of(file)
    if one.holds == "ids":
        return "records" if ids else "binary"
    if one.holds == "text":
        return "binary" if _is_binary(file) else "text"
    if (
        one.name == "jsonl"
        and file.suffix.lower() in _BY_CONTENT
        and not file.name.lower().endswith(one.endings)
    ):
        return "records" if _has_column(file, column) else "other json"
    return "records"


def holds_records(file: Path, column: str) -> bool:
    """Return whether the pipeline `text` reads a file by its format: records with this column, or ids."""
    return format_of(file).holds != "text" and _kind(file, column, "auto", True) == "records"


def _has_column(file: Path, column: str) -> bool:
    objects = FORMATS["jsonl"].objects
    assert objects is not None
    try:
        first = next(islice(objects(file), 1), {})
        return column in first if column else bool(first)
    except FormatError:
        return False


def _is_binary(file: Path) -> bool:
    try:
        with open_binary(file) as stream:
            return b"\0" in stream.read(_HEAD_BYTES)
    except OSError:  # its reader reports it
        return False


def shown(files: Sequence[Path]) -> str:
    """Return the names of the first files, and how many more there are."""
    names = ", ".join(file.name for file in files[:_SHOWN])
    return f"{names} and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else names


def _mixed(path: str, records: Sequence[Path], prose: Sequence[Path], argument: str) -> str:
    ending = "".join(records[0].suffixes[-2:]) if records[0].suffix in (".gz", ".zst") else records[0].suffix
    return (
        f"[{argument}] expected files of one kind in {path!r}, got {len(records):,} of records ({shown(records)}) and "
        f"{len(prose):,} of text ({shown(prose)}); name the records: {argument}='{path}/**/*{ending}', or read all of "
        "them as text: data.format=text"
    )


def _saved(files: Iterable[Path]) -> list[Path]:
    """Return the files without those of a save_to_disk folder that its state.json does not name."""
    by_folder: dict[Path, list[Path]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file)
    return [file for folder, some in by_folder.items() for file in _of_state(folder, some)]


def _of_state(folder: Path, files: list[Path]) -> list[Path]:
    """Return the files of one folder: of a save_to_disk folder those that state.json names.

    UserError without a readable state.json, or if a file that it names is missing.
    """
    arrow = [file for file in files if file.suffix == ".arrow"]
    state = folder / "state.json"
    if not arrow or not (state.exists() or any(_SHARD.fullmatch(file.name) for file in arrow)):
        prepared = (
            arrow and (folder / "dataset_info.json").exists()
        )  # by `datasets`, which caches steps there too
        return [file for file in files if not (prepared and file.name.startswith("cache-"))]
    try:
        named = {entry["filename"] for entry in json.loads(read_bytes(state))["_data_files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise UserError(
            f"[data.path] {folder} looks like a folder of save_to_disk, but its state.json {reason}, which names its "
            f"files; save the data set again, or name the files: data.path='{folder}/*.arrow'"
        ) from None
    if missing := sorted(named - {file.name for file in files}):
        raise UserError(
            f"[data.path] {state} names {missing[0]}, which is not there; save or copy the data set again"
        )
    return [file for file in files if file.name in named or file not in arrow]
