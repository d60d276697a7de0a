"""Compare data and a tokenizer that the user names with the hashes of a statement."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_bytes
from mudd_core.config.data import DocumentRule
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.boundaries import rule_named
from mudd_core.data.sources.corpus import scan_listing
from mudd_core.data.sources.listing import list_files
from mudd_core.data.sources.notes import note_of
from mudd_core.data.tokenizers.files import VOCABULARIES
from mudd_core.provenance.check import Findings, digits_that_differ
from mudd_core.provenance.statement import Statement

_DATA, _TOKENIZER = "[verify] --data", "[verify] --tokenizer"
_MOST_FILES = 1_000_000


def has_data_hash(statement: Statement) -> bool:
    """Return True if a statement has hashes that check_data compares."""
    values = statement.section("config").get("values")
    pipeline = values.get("data.pipeline", "text") if isinstance(values, dict) else "text"
    of_text = bool(statement.text("data", "documents")) and pipeline == "text"
    return of_text or bool(statement.section("data").get("files"))


def check_data(statement: Statement, named: str, found: Findings) -> None:
    """Compare files with the documents or the files of the statement.

    Raise UserError if they cannot be read, or if the statement has hashes of neither.
    """
    path = local(named or ".", _DATA)
    if not path.exists():
        raise UserError(
            f"{_DATA}: expected the file or folder of the data, got '{named}', which does not exist"
        )
    files = statement.section("data").get("files")
    values = statement.section("config").get("values")
    settings = values if isinstance(values, dict) else {}
    if isinstance(files, list) and files:
        _check_source_files(path, [one for one in files if isinstance(one, str)], found)
    elif (documents := statement.text("data", "documents")) and settings.get(
        "data.pipeline", "text"
    ) == "text":
        listing = list_files(named, local_root(""))  # "" is Python's standard library
        rule = settings.get("data.document", "auto")
        if rule not in get_args(DocumentRule):
            raise UserError(f"[verify] {statement.place}: data.document: unknown value {rule!r}")
        got = scan_listing(listing, None, rule_named(str(rule))).hash
        _compare(
            found,
            f"data: the documents of {named or 'the standard library'}",
            documents,
            got,
            "the documents of the data have",
        )
    else:
        raise UserError(
            f"{_DATA}: {statement.place} has no hash of the documents or of their files (this pipeline, or a mixture, "
            "keeps none); leave --data out, or add --train, which compares the tokens"
        )


def _check_source_files(path: Path, wanted: list[str], found: Findings) -> None:
    """Require that each SHA-256 of the statement is the one of a file in `path`."""
    there = Counter(note_of(file)["sha256"] for file in _files(path))
    lacking = Counter(wanted) - there
    if lacking:
        first = next(iter(lacking))
        found.differs.append(
            f"data: {lacking.total()} of the {len(wanted)} files that the run read are not in {path} (the first has "
            f"SHA-256 {first[:16]}...)"
        )
    else:
        found.shown.append(f"all files that the run read ({len(wanted):,}) are in {path}")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    seen = 0
    for place, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                raise UserError(f"{_DATA}: expected at most {_MOST_FILES:,} files in {path}, got more")
            if (file := Path(place) / name).is_file():
                yield file


def check_tokenizer(statement: Statement, named: str, found: Findings) -> None:
    """Compare a tokenizer file, or the one in a folder, with the tokenizer of the run."""
    wanted = statement.text("tokenizer", "sha256")
    if not wanted:
        raise UserError(f"{_TOKENIZER}: {statement.place} has no hash of a tokenizer; leave --tokenizer out")
    place = local(named, _TOKENIZER)
    files = (
        [place] if place.is_file() else [place / name for name in VOCABULARIES if (place / name).is_file()]
    )
    if not files:
        raise UserError(
            f"{_TOKENIZER}: expected a file, or a folder with {' or '.join(VOCABULARIES)}, got '{named}'"
        )
    got = hashlib.sha256(read_bytes(files[0])).hexdigest()
    _compare(found, f"tokenizer: {files[0]}", wanted, got, "the tokenizer has")


def check_base(statement: Statement, named: str, hash_of: Callable[[], str], found: Findings) -> None:
    """Compare the hash of base weights with the base of the statement. hash_of: computes the hash."""
    wanted = statement.text("base", "sha256")
    if not wanted:
        raise UserError(f"[verify] --base: {statement.place} names no base weights; leave --base out")
    _compare(found, f"base: the weights of {named}", wanted, hash_of(), "the base weights have")


def _compare(found: Findings, what: str, wanted: str, got: str, shown: str) -> None:
    if got == wanted:
        found.shown.append(f"{shown} the SHA-256 of the statement")
    else:
        expected, here = digits_that_differ(wanted, got)
        found.differs.append(f"{what}: expected SHA-256 {expected}, got {here}")
