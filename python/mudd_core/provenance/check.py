"""Compare the files of an export with its statement."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary, open_regular
from mudd_core.interop.imported import CARRIED
from mudd_core.provenance.statement import NAME, Statement

_CARD = "README.md"
_MOST_CARD = 1 << 20
_MOST_SEEN = 20_000  # files of a folder
_QUOTE = re.compile(rb"`" + re.escape(NAME.encode()) + rb"` \(SHA-256 ([0-9a-f]{64})\)")
# Files that a program may load as weights, code, tokenizer, template or settings, which the statement must name.
_LOADED = (
    *(
        ".safetensors",
        ".gguf",
        ".bin",
        ".pt",
        ".pth",
        ".ckpt",
        ".h5",
        ".msgpack",
        ".npz",
        ".npy",
        ".onnx",
        ".pkl",
    ),
    *(".pickle", ".py", ".pyc", ".so", ".jinja", ".index.json", "modelfile"),
)
_SETTINGS = {
    *CARRIED,
    "config.json",
    "adapter_config.json",
    "vocab.txt",
    "preprocessor_config.json",
    "spiece.model",
}


@dataclass
class Findings:
    """The result of a comparison, as phrases: what differs, what was shown, and what was not shown."""

    differs: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    unshown: list[str] = field(default_factory=list)


def statement_file(place: Path) -> Path:
    """Return the statement of a folder, or of a GGUF file."""
    if place.name == NAME or place.name.endswith(f".{NAME}"):
        return place
    return place.with_suffix(f".{NAME}") if place.suffix == ".gguf" and not place.is_dir() else place / NAME


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(statement: Statement, found: Findings) -> None:
    """Compare the sections with their hashes, each named file with its own, and the model card's quote."""
    for name in statement.edited():
        found.differs.append(f"{NAME}: its section '{name}' was edited, because its SHA-256 is another one")
    folder, weights = statement.place.parent, statement.subject
    changed = [text for name, sha256 in weights.items() if (text := _difference(folder, name, sha256))]
    wrong = [*changed]
    if len(wrong) == len(weights) > 1 or (wrong and not _is_missing(wrong[0]) and len(weights) == 1):
        wrong.append(
            f"no weight file matches the statement, which is about step {statement.step} of the run "
            f"{statement.text('run', 'id')}: the weights were changed, or it is another run's statement"
        )
    found.differs += wrong
    others = [text for name, sha256 in statement.files.items() if (text := _difference(folder, name, sha256))]
    found.differs += others
    found.differs += [
        f"{name}: the statement does not name this file" for name in _strangers(statement, found)
    ]
    _check_card(statement, found)
    total, different = len(weights) + len(statement.files), [*changed, *others]
    if not different:
        count = f"{len(statement.files)} other files" if len(statement.files) != 1 else "1 other file"
        found.shown.append(
            f"{len(weights)} weight file{'s'[: len(weights) != 1]} and {count} match the statement"
        )
    elif equal := total - len(different):
        found.shown.append(f"{equal} of {total} files match the statement")


def _difference(folder: Path, name: str, sha256: str) -> str:
    """Return how a file differs from its SHA-256; empty if it does not. Links are not followed."""
    try:
        got = _hash_inside(folder, name)
    except FileNotFoundError:
        return f"{name}: the file is missing"
    except OSError as error:
        return f"{name}: {error.strerror}"
    if got == sha256:
        return ""
    expected, found = digits_that_differ(sha256, got)
    return f"{name}: expected SHA-256 {expected}, got {found}"


def digits_that_differ(one: str, other: str) -> tuple[str, str]:
    """Return the first 16 digits of two hashes, or all of them if these are equal."""
    if one[:16] != other[:16]:
        return f"{_printable(one[:16])}...", f"{_printable(other[:16])}..."
    return _printable(one), _printable(other)


def _is_missing(text: str) -> bool:
    return text.endswith("is missing")


def _hash_inside(folder: Path, name: str) -> str:
    """Return the SHA-256 of a regular file in a folder; raise OSError if it, or a folder on the way, is a link."""
    place = folder
    for part in name.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            raise OSError(errno.ELOOP, "expected a folder, got a link; copy the files (cp -rL)")
    with os.fdopen(open_regular(folder / name, links=False), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _strangers(statement: Statement, found: Findings) -> Iterator[str]:
    """Yield files of _LOADED and _SETTINGS in the folder that the statement does not name."""
    folder, known = statement.place.parent, {*statement.subject, *statement.files}
    if statement.place.name != NAME:  # of a GGUF file, whose folder has other files
        return
    seen, waiting = 0, [""]
    while waiting:  # os.walk recurses, so a deep folder would end it
        inside = waiting.pop()
        try:
            with os.scandir(folder / inside) as listed:
                entries = sorted(listed, key=lambda one: one.name)
        except OSError as error:
            found.unshown.append(f"the files in {_printable(inside)[:60]} ({error.strerror})")
            continue
        folders = []
        for entry in entries:
            path = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                folders += [] if entry.name.startswith(".") else [f"{path}/"]
                continue
            seen += 1
            if seen > _MOST_SEEN:
                raise UserError(
                    f"[verify] {folder}: expected at most {_MOST_SEEN:,} files, got more; move the ones away that "
                    "`export` did not write"
                )
            is_loaded = entry.name.lower().endswith(_LOADED) or entry.name in _SETTINGS
            if path not in known and is_loaded:
                yield _printable(path)
        waiting += reversed(folders)


def _check_card(statement: Statement, found: Findings) -> None:
    """Compare the SHA-256 that the model card quotes with the statement's."""
    card = statement.place.parent / _CARD
    if statement.place.name != NAME or not os.path.lexists(card):
        return
    try:
        with open_binary(card, links=False) as file:
            text = file.read(_MOST_CARD)
    except OSError as error:
        found.unshown.append(f"that {_CARD} means this statement ({error.strerror})")
        return
    quoted = _QUOTE.search(text)
    if quoted is None:
        found.unshown.append(f"that {_CARD} means this statement, because it quotes none")
    elif quoted[1].decode() != statement.sha256:
        theirs, ours = digits_that_differ(quoted[1].decode(), statement.sha256)
        found.differs.append(
            f"{NAME}: {_CARD} quotes a statement of SHA-256 {theirs}, this one has "
            f"{ours}: the statement was edited or replaced"
        )


def _printable(text: str) -> str:
    return text[:200] if text.isprintable() else ascii(text[:200])
