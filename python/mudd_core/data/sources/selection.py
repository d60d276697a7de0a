"""Select the data among the files of data.path: record files without the cards, licences and images next to them.

A folder without record files is a folder of text, and all of its files are data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.data.formats import FORMATS, format_of
from mudd_core.data.sources.listing import data_files, parts_of

_CARD = re.compile(
    r"readme.*|licen[sc]e.*|_.*|.*\.(png|jpe?g|gif|webp|svg|bmp|tiff?|ico)|(dataset_infos|config)\.json",
    re.IGNORECASE,
)
_SHARD = re.compile(r"data-\d{5}-of-\d{5}\.arrow")  # the names that save_to_disk writes
_BY_CONTENT = ("", ".json")  # suffixes that both records and text may have
_HEAD_BYTES = 4096
_SHOWN = 3
_PROSE = ("text", "other json")


@dataclass(frozen=True)
class Selection:
    """The data among some files.

    records: the data are record files or files of ids. notes: lines about skipped files.
    """

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
    """Return the data among the files of a path. Raise UserError for a folder with both record files and prose.

    argument: the name of the field. column: of the text; empty to accept any JSON object. named: the value of
    data.format. ids: files of token ids are data too. repeats: as in data_files.
    """
    links: list[Path] = []
    files = data_files(path, argument, links=links, repeats=repeats)
    typed = {Path(part.strip()).expanduser().absolute() for part in parts_of(path)}
    roots = folders_in(path)
    found = _saved([file for file in files if file not in typed], roots)
    kinds = {file: _kind(file, column, ids) for file in found if not _is_card(file)}
    records = set(_records(kinds, named))
    about_links = (f"{len(links):,} links left out, {links[0]} first",) if links else ()
    if not records or named == "text":
        whole = {*found, *typed}
        return Selection(tuple(file for file in files if file in whole), False, about_links)
    prose = [
        file
        for file, kind in kinds.items()
        if named == "auto" and file not in records and kind in _PROSE and not _is_binary(file)
    ]
    if prose:
        raise UserError(_mixed(path, [file for file in found if file in records], prose, argument))
    left = [file for file in found if file not in records]
    notes = (f"files without records are left out: {shown(left, roots)}",) if left else ()
    kept = {*records, *(file for file in files if file in typed)}
    return Selection(tuple(file for file in files if file in kept), True, (*notes, *about_links))


def folders_in(path: str) -> list[Path]:
    """Return the folders among the parts of a path."""
    parts = (Path(part.strip()).expanduser().absolute() for part in parts_of(path) if part.strip())
    return [part for part in parts if part.is_dir()]


def _is_card(file: Path) -> bool:
    """Return whether a file describes the data: a README, a licence, an image, or a name that starts with `_`."""
    is_record = any(
        file.name.lower().endswith(one.endings) for one in FORMATS.values() if one.holds == "records"
    )
    return bool(_CARD.fullmatch(file.name)) and (not is_record or file.name.startswith("_"))


def _records(kinds: dict[Path, str], named: str) -> list[Path]:
    """Return the record files; with a named format the files of that format, or all if none matches."""
    if named not in ("auto", "text"):
        return [file for file in kinds if format_of(file).name == named] or list(kinds)
    records = [file for file, kind in kinds.items() if kind == "records"]
    others = [file for file, kind in kinds.items() if kind == "other json"]
    if records or not others:
        return records
    # Without prose next to them, these JSON files are data: the readers report a missing column.
    return [] if any(kind == "text" and not _is_binary(file) for file, kind in kinds.items()) else others


def _kind(file: Path, column: str, ids: bool) -> str:
    """Return `records`, `text`, `other json` (without the column) or `ids`."""
    one = format_of(file)
    if one.holds == "ids":
        return "records" if ids else "ids"
    if one.holds == "text":
        return "text"  # or a file that no reader accepts; if necessary, selected() checks its bytes
    if (
        one.name == "jsonl"
        and file.suffix.lower() in _BY_CONTENT
        and not file.name.lower().endswith(one.endings)
    ):
        return "records" if _has_column(file, column) else "other json"
    return "records"


def holds_records(file: Path, column: str) -> bool:
    """Return whether the pipeline `text` reads a file by its format: records with this column, or ids."""
    return format_of(file).holds != "text" and _kind(file, column, True) == "records"


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
    except OSError:  # the file's reader reports the error
        return False


def shown(files: Sequence[Path], roots: Sequence[Path] = ()) -> str:
    """Return the names of the first files, relative to the folders of the data, and the number of further files."""

    def name_of(file: Path) -> str:
        return next((str(file.relative_to(root)) for root in roots if file.is_relative_to(root)), file.name)

    names = ", ".join(map(name_of, files[:_SHOWN]))
    return f"{names} and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else names


def _mixed(path: str, records: Sequence[Path], prose: Sequence[Path], argument: str) -> str:
    kinds = sorted({format_of(file).name for file in records})
    roots = folders_in(path)
    return (
        f"[{argument}] expected files of one kind in {path!r}, got {len(records):,} with records "
        f"({shown(records, roots)}) and {len(prose):,} with text ({shown(prose, roots)}); set "
        f"data.format={kinds[0]} to read only the records, or data.format=text to read all files as "
        "text"
    )


def _saved(files: Sequence[Path], roots: Sequence[Path]) -> list[Path]:
    """Return the files, except data of a save_to_disk folder that its state.json does not list.

    Only files below a folder in data.path are checked, because a pattern names its files explicitly.
    """
    by_folder: dict[Path, list[Path]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file)
    found: list[Path] = []
    for folder, some in by_folder.items():
        below = any(folder.is_relative_to(root) for root in roots)
        found += _of_state(folder, some) if below else some
    return found


def _of_state(folder: Path, files: list[Path]) -> list[Path]:
    """Return the files of one folder; in a save_to_disk folder only the data files that state.json lists.

    Raise UserError without a readable state.json, or if a file that it names is missing.
    """
    arrow = [file for file in files if file.suffix == ".arrow"]
    state = folder / "state.json"
    if not arrow or not (state.exists() or any(_SHARD.fullmatch(file.name) for file in arrow)):
        # `datasets` also caches intermediate results in a folder that it has prepared.
        prepared = arrow and (folder / "dataset_info.json").exists()
        return [file for file in files if not (prepared and file.name.startswith("cache-"))]
    try:
        named = {entry["filename"] for entry in json.loads(read_bytes(state))["_data_files"]}
    except (KeyError, TypeError):
        raise _no_state(folder, "does not list its files") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise _no_state(folder, reason) from None
    if missing := sorted(name for name in named if not (folder / name).exists()):
        raise UserError(
            f"[data.path] {state} names {missing[0]}, which does not exist; save or copy the data set again"
        )
    return [file for file in files if file.name in named or file not in arrow]


def _no_state(folder: Path, reason: str) -> UserError:
    return UserError(
        f"[data.path] {folder} looks like a folder of save_to_disk, whose state.json names its files, but state.json "
        f"{reason}; save the data set again, or name the files: data.path='{folder}/data-*.arrow'"
    )
