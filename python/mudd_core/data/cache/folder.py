"""Find the cache folder of a run, build one under its lock, or use one from an earlier version."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.regular_files import open_to_append
from mudd_core.base.surroundings import notes_stream
from mudd_core.data.cache.token_cache import TokenCache, is_unsealed, open_cache
from mudd_core.data.sources.corpus import Progress


def as_it_is(folder: Path, obstacle: Exception) -> TokenCache:
    """Return a cache of an earlier version that cannot be rebuilt; the checksum of its totals is not checked."""
    cache = open_cache(folder, sealed=False)
    _ = cache.tokenizer  # loads the tokenizer, which checks its vocabulary
    print(
        f"note: the token cache {folder} is of an earlier version, without a checksum over its totals; it is used as "
        f"it is, since it cannot be rebuilt: {obstacle}",
        file=notes_stream(),
    )
    return cache


def is_current(folder: Path) -> bool:
    """Return whether the folder has a cache of this version."""
    return folder.is_dir() and not is_unsealed(folder)


def saved_cache(root: Path, fingerprint: str | None) -> TokenCache | None:
    """Return the cache that a run was started with; None if no cache of this version exists."""
    if fingerprint is None:
        return None
    if len(fingerprint) != 16 or set(fingerprint) - set("0123456789abcdef"):
        raise UserError(f"[data] fingerprint: expected 16 hexadecimal digits, got {fingerprint!r}")
    return open_cache(root / fingerprint) if is_current(root / fingerprint) else None


def require_name(wanted: str | None, got: str, hint: str = "") -> None:
    """Raise UserError if the run was started with another cache, which no longer exists."""
    if wanted is not None and wanted != got:
        raise UserError(
            "[data.path] expected the text and tokenizer of the start of this run: their cache "
            f"{wanted} is missing, and the present ones belong to the cache {got}; restore the old "
            f"text{hint}, or start a new run in another work directory"
        )


def build_locked(root: Path, name: str, build: Callable[[], None], progress: Progress) -> TokenCache:
    """Return the cache that `build` creates under its lock, unless another process was faster.

    A cache of an earlier version is replaced; if that fails, it is used unchanged.
    """
    old = is_unsealed(root / name)
    try:
        with locked(root, f"{name}.lock", progress):
            if not is_current(root / name):
                if old:
                    print(
                        f"note: the token cache {root / name} is of an earlier version, without a checksum over its "
                        "totals; it is rebuilt from the same text",
                        file=notes_stream(),
                    )
                build()
        return open_cache(root / name)
    except (UserError, SaveError) as e:
        if not old:
            raise
        return as_it_is(root / name, e)  # the folder is read-only, or the disk is full


@contextlib.contextmanager
def locked(root: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock until the block or the process ends; report while another process has the lock."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = open_to_append(root / name)
    except OSError as e:
        raise UserError(f"[data.cache_dir] cannot write in {str(root)!r}: {e.strerror}") from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that builds this cache", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as e:
            progress(
                f"the file system of {root} has no locks ({e.strerror}): do not build a token cache "
                "there with two processes at once",
                0,
                0,
            )
        yield
