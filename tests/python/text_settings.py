"""Helpers of the tests of corpora, caches and batches."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from places import ROOT

SOURCES = ROOT / "python"


@dataclass(frozen=True)
class Settings:
    path: str
    cache_dir: str
    tokenizer: str = "bpe"
    vocab_size: int = 300
    document: str = "auto"


def quiet(phase: str, done: int, total: int) -> None:
    """Show no progress on the terminal."""


def age(path: Path) -> None:
    """Set modification times back; the ctime, which `settle` waits for, stays new."""
    for p in [path, *path.rglob("*")]:
        os.utime(p, (1e9, 1e9))


_watched: list[str] | None = None


@functools.cache
def _watch() -> None:
    """Install the audit hook at the first watch and only once, because it cannot be removed."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if _watched is not None and event == "open" and isinstance(arguments[0], str | bytes):
            _watched.append(os.fsdecode(arguments[0]))

    sys.addaudithook(note)


@contextmanager
def watched_opens() -> Iterator[list[str]]:
    """Yield the paths that Python opens inside the block, in order."""
    global _watched
    _watch()
    _watched = paths = []
    try:
        yield paths
    finally:
        _watched = None
