"""Caches in their folder: which one is current, building one under its lock, and those of earlier versions."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.regular_files import open_to_append
from mudd_core.data.cache import SPLITS, TokenCache, is_unsealed, open_cache, way_out
from mudd_core.data.cache_build import build_cache
from mudd_core.data.corpus import Corpus, Progress
from mudd_core.data.tokenizer_source import TokenizerSource


def as_it_is(folder: Path, obstacle: Exception) -> TokenCache:
    """A cache of an earlier version that cannot be built anew; it has passed every check but that of its totals."""
    cache = open_cache(folder, sealed=False)
    _ = cache.tokenizer  # the check of its vocabulary
    print(
        f"note: the token cache {folder} is of an earlier version, without a checksum over its totals; it is used as "
        f"it is, since it cannot be built anew: {obstacle}",
        file=sys.stderr,
    )
    return cache


def is_current(folder: Path) -> bool:
    """Whether a cache of this version is there."""
    return folder.is_dir() and not is_unsealed(folder)


def built(root: Path, name: str, corpus: Corpus, source: TokenizerSource, progress: Progress) -> TokenCache:
    """The cache built under its lock, unless another process was faster; one of an earlier version is replaced."""
    old = is_unsealed(root / name)
    try:
        with locked(root, f"{name}.lock", progress):
            if is_current(root / name):
                return open_cache(root / name)
            if old:
                print(
                    f"note: the token cache {root / name} is of an earlier version, without a checksum over its "
                    "totals; it is built anew from the same text",
                    file=sys.stderr,
                )
            return build_cache(root, corpus, source, progress)
    except (UserError, SaveError) as e:
        if not old:
            raise
        return as_it_is(root / name, e)  # a folder that may not be written, a full disk


def compare(cache: TokenCache, corpus: Corpus) -> None:
    """FormatError if the totals of a cache are not those of its text."""
    for split in SPLITS:
        place, documents = cache.place(split), corpus.documents(split)
        if (place.documents, place.text_bytes) != (len(documents), corpus.size(split)):
            raise FormatError(
                str(cache.file),
                0,
                f"{split}: {place.documents} documents of {place.text_bytes} bytes, but the text has "
                f"{len(documents)} of {corpus.size(split)}; {way_out(cache.path)}",
            )


@contextlib.contextmanager
def locked(root: Path, name: str, progress: Progress) -> Iterator[None]:
    """Exclusive lock that dies with its process; waits, saying so, while another process builds."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = open_to_append(root / name)
    except OSError as e:
        raise UserError(f"[data.cache_dir] cannot write in {str(root)!r}: {e.strerror}") from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that builds this cache", 0, 1)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as e:
            progress(f"no locks in {root} ({e.strerror}): let one process at a time build there", 0, 1)
        yield
