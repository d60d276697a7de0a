"""provenance.json, an in-toto Statement: written in one canonical form, and read with bounds.

docs/file-formats.md describes the predicate. A statement comes from strangers, so every value is checked before use,
and every fault of the file is a UserError.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn, TypeVar

from mudd_core.base.errors import UserError
from mudd_core.base.members import strict_json
from mudd_core.base.regular_files import open_binary
from mudd_core.base.types import Json, JsonObject

NAME = "provenance.json"
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:mudd-core:training:v1"
# The parts of a predicate, each with its own hash in `sections`, so that a message can name the edited part.
SECTIONS = ("config", "data", "tokenizer", "code", "base", "run", "export", "files", "missing")
MAX_BYTES, MAX_FILES = 4 << 20, 10_000
_MAX_DEPTH, _MAX_NAME = 16, 512
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = {str: "a string", int: "a whole number", list: "a list", dict: "an object", float: "a number"}
T = TypeVar("T")


@dataclass(frozen=True)
class Statement:
    """A statement. subject, files: SHA-256 by name of the weight files and of the other files of the export.

    sections: the parts of the predicate by name. hashes: the SHA-256 that the statement has of each part. sha256: of
    the file itself.
    """

    place: Path
    subject: dict[str, str]
    files: dict[str, str]
    sections: dict[str, Json]
    hashes: dict[str, str]
    sha256: str

    def section(self, name: str) -> JsonObject:
        """Return a section; empty if the statement has none."""
        found = self.sections.get(name)
        return found if isinstance(found, dict) else {}

    def member(self, section: str, name: str, kind: type[T]) -> T:
        """Return a value of a section; raise UserError if it is missing or has another type."""
        value = self.section(section).get(name)
        if type(value) is not kind:
            _refuse(self.place, f"{section}.{name}: expected {_KINDS[kind]}, got {_shown(value)}")
        assert isinstance(value, kind)
        return value

    def text(self, section: str, name: str) -> str:
        """Return a string of a section; empty if it is missing, something else, or longer than a line."""
        value = self.section(section).get(name)
        return value if isinstance(value, str) and len(value) <= _MAX_NAME and value.isprintable() else ""

    @property
    def step(self) -> int:
        """The step of the checkpoint; -1 if the statement has none."""
        found = self.section("run").get("step")
        return found if isinstance(found, int) and 0 <= found < 1 << 62 else -1

    def edited(self) -> list[str]:
        """Return the names of the sections whose hash is not the one in the statement."""
        return [name for name in SECTIONS if _hash(self.sections.get(name)) != self.hashes.get(name)]


def statement_bytes(subject: Mapping[str, str], files: Mapping[str, str], sections: JsonObject) -> bytes:
    """Return a statement. subject, files: SHA-256 by name. sections: the other parts of the predicate, by name."""
    parts: JsonObject = {name: sections.get(name) for name in SECTIONS}
    parts["files"] = _descriptors(files)
    statement: JsonObject = {
        "_type": TYPE,
        "subject": _descriptors(subject),
        "predicateType": PREDICATE,
        "predicate": {**parts, "sections": {name: _hash(parts[name]) for name in SECTIONS}},
    }
    return (json.dumps(statement, indent=1, allow_nan=False) + "\n").encode()


def read_statement(file: Path) -> Statement:
    """Read a statement; raise UserError if it is missing, too large, malformed, or names a file elsewhere."""
    try:
        with open_binary(file, links=False) as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"[verify] {file}: {error.strerror}; expected the statement that `export` writes (exports of earlier "
            "versions have none: export the run again)"
        ) from None
    if len(data) > MAX_BYTES:
        _refuse(file, f"expected at most {MAX_BYTES:,} bytes, got more")
    try:
        raw = strict_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(file, f"not JSON ({error or 'nested too deeply'})")
    if _depth(raw) > _MAX_DEPTH:
        _refuse(file, f"expected at most {_MAX_DEPTH} levels, got more")
    return _checked(file, raw, hashlib.sha256(data).hexdigest())


def _checked(file: Path, raw: Json, sha256: str) -> Statement:
    if not isinstance(raw, dict):
        _refuse(file, f"expected an object, got {_shown(raw)}")
    for key, wanted in (("_type", TYPE), ("predicateType", PREDICATE)):
        if raw.get(key) != wanted:
            _refuse(file, f"{key}: expected '{wanted}', got {_shown(raw.get(key))}")
    predicate = raw.get("predicate")
    if not isinstance(predicate, dict):
        _refuse(file, f"predicate: expected an object, got {_shown(predicate)}")
    sections: dict[str, Json] = {}
    for name in SECTIONS:
        value = predicate.get(name)
        if name not in ("files", "missing") and not isinstance(value, dict | None):
            _refuse(file, f"predicate.{name}: expected an object or null, got {_shown(value)}")
        sections[name] = value
    hashes = predicate.get("sections")
    if not isinstance(hashes, dict) or not all(isinstance(one, str) for one in hashes.values()):
        _refuse(file, f"predicate.sections: expected hashes by name, got {_shown(hashes)}")
    subject = _named(file, "subject", raw.get("subject"))
    if not subject:
        _refuse(file, "subject: expected at least one file, got none")
    files = _named(file, "predicate.files", predicate.get("files"))
    if both := sorted(subject.keys() & files.keys()):
        _refuse(file, f"predicate.files: '{both[0]}' is in subject too")
    return Statement(file, subject, files, sections, {k: str(v) for k, v in hashes.items()}, sha256)


def _named(file: Path, where: str, raw: Json) -> dict[str, str]:
    """Return SHA-256 by name from a list of in-toto's resource descriptors."""
    if not isinstance(raw, list) or len(raw) > MAX_FILES:
        _refuse(file, f"{where}: expected a list of at most {MAX_FILES:,} files, got {_shown(raw)}")
    found: dict[str, str] = {}
    for one in raw:
        name = one.get("name") if isinstance(one, dict) else None
        digest = one.get("digest") if isinstance(one, dict) else None
        sha256 = digest.get("sha256") if isinstance(digest, dict) else None
        if not isinstance(name, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            _refuse(file, f"{where}: expected a name and a digest with sha256, got {_shown(one)}")
        if not _is_inside(name):
            _refuse(file, f"{where}: expected a file in the folder, got the name {_shown(name)}")
        if name in found:
            _refuse(file, f"{where}: {_shown(name)} is listed twice")
        found[name] = sha256
    return found


def _is_inside(name: str) -> bool:
    """Return True for a relative path without `..`, written in one way only."""
    parts = name.split("/")
    plain = len(name) <= _MAX_NAME and name.isprintable() and "\\" not in name
    return plain and all(part not in ("", ".", "..") for part in parts) and str(PurePosixPath(name)) == name


def _descriptors(hashes: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "digest": {"sha256": hashes[name]}} for name in sorted(hashes)]


def _hash(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _depth(value: Json) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(child, level + 1) for child in inner]
    return deepest


def _shown(value: Json) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse(file: Path, reason: str) -> NoReturn:
    raise UserError(f"[verify] {file}: {reason}; the statement is damaged, or it is of another version")
