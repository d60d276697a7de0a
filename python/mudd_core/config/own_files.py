"""User files that a config field names as FILE.py:NAME: an architecture, an optimizer, a reader.

importlib runs a file once per content, from exactly the bytes whose hash is recorded. A file runs only if a command
or a program names it. A saved config alone never runs a file: its files are held back until a command names them.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from mudd_core.base.errors import UserError, in_one_line
from mudd_core.base.regular_files import read_bytes

files_read: list[Path] = []  # configs and user files that have run, in this order


@dataclass(frozen=True)
class OwnFile:
    """A file that has been run.

    key: the config field. file: the path that the user wrote. text: the bytes of the file.
    """

    key: str
    file: str
    text: bytes
    module: ModuleType

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes, hex."""
        return sha256_of(self.text)


def sha256_of(text: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(text).hexdigest()


_run: dict[tuple[str, str, str], OwnFile] = {}  # by key, file and hash
_pinned: dict[tuple[str, str], OwnFile] = {}  # by key and value
# By key and value: returns the bytes, or raises UserError.
_offered: dict[tuple[str, str], Callable[[], bytes]] = {}
_named: set[tuple[str, str]] = set()  # keys and values that a command or a program has named
_held: set[tuple[str, str]] = set()  # keys and values that only a saved config has named
_running: dict[str, OwnFile] = {}  # by module name, set before the code runs


class _FromText(importlib.machinery.SourceFileLoader):
    """A loader of a module from given bytes, without bytecode."""

    def __init__(self, name: str, file: str, text: bytes) -> None:
        super().__init__(name, file)
        self._text = text

    def get_data(self, path: str) -> bytes:
        """Return the bytes of the source."""
        return self._text

    def path_stats(self, path: str) -> NoReturn:
        """Raise OSError, so that no bytecode is used."""
        raise OSError


def split_name(value: str) -> tuple[str, str] | None:
    """Return (FILE.py, NAME) of a value in this form; None for any other."""
    file, _, name = value.rpartition(":")
    return (file, name) if file.endswith(".py") else None


def plain_name(value: str) -> str:
    """Return NAME of FILE.py:NAME, and any other value as it is. Two machines have a file in different folders."""
    found = split_name(value)
    return value if found is None else found[1]


def run_own(key: str, value: str, text: bytes | None = None) -> OwnFile:
    """Run the file of FILE.py:NAME, unless these bytes have been run under this name already.

    text: the bytes of the file, if they come from a run's copy or from rank 0. Raise UserError, one line, for a file
    that is missing or fails.
    """
    found = split_name(value)
    if found is None or not found[1].isidentifier():
        raise UserError(f"[{key}] expected FILE.py:NAME, got '{value}'")
    file = found[0]
    if text is None:
        _require_named(key, value)
        text = _read(key, value, file)
    digest = sha256_of(text)
    if (key, file, digest) not in _run:
        _run[key, file, digest] = _executed(key, file, text, f"mudd_own_{digest[:16]}_{len(_run)}")
    return _run[key, file, digest]


def pin(key: str, value: str, text: bytes) -> None:
    """Run these bytes as FILE.py:NAME. From now on file_of returns them, even if the file on disk differs."""
    _pinned[key, value] = run_own(key, value, text)


def offer(key: str, value: str, read: Callable[[], bytes]) -> None:
    """Make file_of run the result of `read` as FILE.py:NAME when the file is needed; read may raise UserError."""
    _pinned.pop((key, value), None)
    _offered[key, value] = read


def hold_back(key: str, value: str) -> None:
    """Record that a saved config has FILE.py:NAME. The file on disk does not run before a command names it."""
    found = split_name(value)
    known = (key, value) in _named or found is None or any(one[:2] == (key, found[0]) for one in _run)
    if not known:
        _held.add((key, value))


def name_own(key: str, value: str) -> None:
    """Record that a command or a program has named FILE.py:NAME, which may run from now on."""
    if split_name(value) is None:
        return
    _named.add((key, value))
    _held.discard((key, value))
    if _offered.pop((key, value), None) is not None:
        _pinned.pop((key, value), None)


def has_run(key: str, sha256: str) -> bool:
    """Return True if bytes with this hash have been run for the field in this process."""
    return any(one[0] == key and one[2] == sha256 for one in _run)


def _require_named(key: str, value: str) -> None:
    """Raise UserError for a file that only a saved config names."""
    if (key, value) in _held:
        raise UserError(
            f"[{key}] this config needs the code in {value}, and a command runs only the files that "
            f"its arguments name; add {key}={value} (in Python config.replace({{'{key}': "
            f"'{value}'}})), or pass --workdir=DIR, the work directory that contains a copy"
        )


def file_of(key: str, value: str) -> OwnFile:
    """Return the file of FILE.py:NAME: the pinned or offered bytes, else the file on disk."""
    if (key, value) not in _pinned and (read := _offered.get((key, value))) is not None:
        pin(key, value, read())
    found = _pinned.get((key, value)) or run_own(key, value)
    _show_lines(found)
    return found


def _show_lines(own: OwnFile) -> None:
    """Make tracebacks and inspect show the lines that were run, even if the file has changed."""
    lines = own.text.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[own.file] = (len(own.text), None, lines, own.file)


def _read(key: str, value: str, file: str) -> bytes:
    path = Path(file).expanduser()
    try:
        text = read_bytes(path)
    except FileNotFoundError:
        raise UserError(f"[{key}] expected FILE.py:NAME, got '{value}': there is no file {file}") from None
    except OSError as error:
        raise UserError(f"[{key}] {file}: {error.strerror}") from error
    files_read.append(path)
    return text


def _executed(key: str, file: str, text: bytes, name: str) -> OwnFile:
    loader = _FromText(name, file, text)
    spec = importlib.util.spec_from_loader(name, loader, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    own = OwnFile(key, file, text, module)
    sys.modules[name] = module  # dataclasses and type hints look up the module there
    _running[name] = own
    _show_lines(own)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        message = fault_in_own_file(error) or f"[{key}] {file}: {type(error).__name__}: {in_one_line(error)}"
        del sys.modules[name], _running[name]
        raise UserError(message) from error
    return own


def file_of_module(name: str) -> OwnFile | None:
    """Return the file whose module has this name; None for other modules."""
    return _running.get(name)


def fault_in_own_file(error: BaseException) -> str | None:
    """Return one line with key, file and line of an error from a user's file; None for any other error."""
    by_file = {own.file: own for own in _running.values()}
    if isinstance(error, SyntaxError) and error.filename in by_file:
        return f"[{by_file[error.filename].key}] {error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in by_file]
    if (
        not frames
        and by_file
        and isinstance(error, ValueError | TypeError)
        and str(error).startswith("[custom]")
    ):
        return (
            f"{', '.join(by_file)}: {in_one_line(error)}"  # an error in the result of a function of mc.custom
        )
    if not frames:
        return None
    last = frames[-1]
    kind = f"[{by_file[last.filename].key}] {last.filename}, line {last.lineno}"
    return f"{kind}: {type(error).__name__}: {in_one_line(error)}"
