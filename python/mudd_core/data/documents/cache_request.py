"""Find or build the token cache of documents with a tokenizer.

A build works in `<fingerprint>.parts` (spool.py). After a kill, the next start continues after the complete parts, and
writes the same bytes as an uninterrupted build.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.paths import from_here
from mudd_core.data.cache.file import SPLITS, SplitIds, write_h5
from mudd_core.data.cache.folder import build_locked, is_current, require_name
from mudd_core.data.cache.token_cache import TokenCache, fingerprint_of, open_cache
from mudd_core.data.documents.encoding import ChildTokenizer
from mudd_core.data.documents.source import DocumentSource
from mudd_core.data.documents.spool import Encoding, Spool
from mudd_core.data.progress import UNKNOWN, ConsoleProgress, end_on_request
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.sources.notes import drop_notes, keep_notes, require_unchanged
from mudd_core.data.tokenizers.bpe_pieces import has_long_piece
from mudd_core.data.tokenizers.bpe_training import PHASE, train_bpe
from mudd_core.data.tokenizers.source import TokenizerSource, stored_file, stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer, Tokenizer

_PHASES = {"train": "encoding training text", "valid": "encoding validation text"}


def build_cache(
    root: Path, name: str, source: DocumentSource, tokenizer: TokenizerSource, progress: Progress
) -> TokenCache:
    """Build the cache of documents under its lock, unless another process was faster.

    name: the cache's name for these documents and this tokenizer (fingerprint_of). Raise SaveError if the disk rejects
    a write.
    """
    return build_locked(root, name, lambda: _Build(root, name, source, tokenizer, progress).run(), progress)


class _NoTokenizer(ByteTokenizer):
    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.eos_id = vocab_size, 0


class _Build:
    def __init__(
        self, root: Path, name: str, source: DocumentSource, tokenizer: TokenizerSource, progress: Progress
    ) -> None:
        self._root, self._name, self._source, self._found = root, name, source, tokenizer
        self._progress, self._counts = progress, source.form.documents
        self._work = root / f"{name}.parts"

    def run(self) -> None:
        """Build the cache. An error deletes the parts; a stop or a kill leaves the complete ones."""
        from mudd_core import _core

        try:
            # Only this process uses these files, because it has the lock.
            _core.remove_dead_temporaries(str(self._root), self._name)
            spool = Spool(self._work)
            data = self._tokenizer_data()
            tokenizer = self._tokenizer(data)
            dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 65536 else np.uint32)
            how = Encoding(tokenizer, self._source.frame, self._source.hold_out, dtype)
            try:
                self._encode(spool, how)
            finally:
                if isinstance(tokenizer, ChildTokenizer):
                    tokenizer.close()
            self._commit(spool, data, how)
            _give_back_memory()
        except OSError as e:
            shutil.rmtree(self._work, ignore_errors=True)
            raise SaveError(
                f"[data.cache_dir] the token cache {self._root / self._name} cannot be written: {e.strerror or e}; "
                "free some space or choose another data.cache_dir"
            ) from None
        # the remedy changes the cache's name, so no later build would continue this one
        except (FormatError, UserError):
            shutil.rmtree(self._work, ignore_errors=True)
            drop_notes(self._root, self._name)
            raise

    def _tokenizer_data(self) -> bytes:
        from mudd_core import _core

        if self._found.kind != "bpe":
            return self._found.data
        file = self._work / "tokenizer.json"
        if not file.exists():
            self._report(PHASE, 0, self._counts.get("train", 1))
            trained = train_bpe(
                (text for _, text in self._source.train.texts()),
                self._counts.get("train", 0),
                self._found.vocab_size,
                splits_long_pieces=self._found.splits_long_pieces,
                report=self._report,
            )
            _core.replace_file(str(file), trained)
        return file.read_bytes()

    def _tokenizer(self, data: bytes) -> Tokenizer:
        found = self._found
        if found.kind == "ids":
            return _NoTokenizer(found.vocab_size)
        tokenizer = stored_tokenizer(found.identity, data, found.file)
        if found.kind == "bytes":
            return tokenizer
        return ChildTokenizer(tokenizer, found, data, lambda: end_on_request("tokenizing"))

    def _report(self, phase: str, done: int, total: int) -> None:
        """Report progress, also if the total is 0, unknown; raise StopRequestedError if a stop was requested."""
        end_on_request(phase)
        self._progress(phase, done, total or UNKNOWN)

    def _encode(self, spool: Spool, how: Encoding) -> None:
        """Append the incomplete parts. Progress counts documents if their number is known, else parts."""
        parts = [part for texts in (self._source.train, self._source.valid) for part in texts.groups()]
        for number, part in enumerate(parts):
            if not self._counts:
                self._report("tokenizing", number, len(parts))
            if number >= spool.totals["parts"]:
                spool.append(part, how, functools.partial(self._report_documents, spool, part.split))
        if not self._counts:
            self._report("tokenizing", len(parts), len(parts))

    def _report_documents(self, spool: Spool, split: Split) -> None:
        self._report(_PHASES[split], spool.documents(split), self._counts.get(split, 0))

    def _commit(self, spool: Spool, data: bytes, how: Encoding) -> None:
        from mudd_core import _core

        root, name, form, totals = self._root, self._name, self._source.form, spool.totals
        ids = {s: SplitIds(spool.ids(s), spool.lengths(s), totals["bytes"][s]) for s in SPLITS}
        if not spool.documents("train"):
            raise UserError("[data.path] expected documents for each split, got none")
        facts: dict[str, str | int] = {
            "fingerprint": name,
            "corpus_hash": self._source.digest(),
            "tokenizer": self._found.identity,
            "tokenizer_hash": hashlib.sha256(data).hexdigest(),
            "vocab_size": how.tokenizer.vocab_size,
            "eos_id": how.tokenizer.eos_id,
        }
        if not form.content:  # the cache's name depends only on the first and last bytes of files
            keep_notes(root, name, totals["sources"])
            # raises an error if a file changed while it was read
            require_unchanged(root, name, self._source.whole_files())
        folder = _core.AtomicFolder(str(root), name, str(os.getpid()))
        try:
            work = Path(folder.temporary)
            if (tokenizer_file := stored_file(self._found.identity)) is not None:
                with (work / tokenizer_file).open("xb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
            write_h5(work / "tokens.h5", ids, how.dtype, facts)
            if "dropped" in totals:
                count, first = totals["dropped"]
                facts |= {"dropped": count, "first_dropped": first}
            if "checked" in totals:
                checked, lost = totals["checked"]
                facts |= {"checked_documents": checked, "lost_documents": lost}
            manifest = form.manifest(facts, totals["train_files"])
            # The cache does not exist yet, and no later start would delete these files.
            shutil.rmtree(self._work, ignore_errors=True)
            if (root / name).is_dir():  # a cache of an earlier version
                folder.seal("cache.json", manifest)
                folder.replace()
            else:
                folder.commit("cache.json", manifest)
        finally:
            del folder  # delete uncommitted files now, not when the traceback is freed


def _give_back_memory() -> None:
    """Let malloc return freed memory to the operating system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # exists in glibc only
    if trim is not None:
        trim(0)


class Origin(Protocol):
    """The source of documents: a DocumentSource, or text that must be read to find its documents (plain_text.py)."""

    def digest(self) -> str | None:
        """Return the digest of the documents; None if all of them must be read to compute it."""

    def whole_files(self) -> Sequence[Path]:
        """Return the files whose edits may leave the digest unchanged; see sources/notes.py."""

    def read(self, progress: Progress) -> DocumentSource:
        """Return the documents; raise UserError if there are none."""

    def accept(self, cache: TokenCache) -> str:
        """Return a note for the user, or an empty string; raise FormatError if the cache is from another source."""


@dataclass(frozen=True)
class CacheRequest:
    """A request for a token cache.

    root: the folder of all caches. hint: a further remedy if the data of a run are gone.
    """

    root: Path
    origin: Origin
    tokenizer: TokenizerSource
    how: Preparation
    hint: str = ""

    def names(self, digest: str) -> dict[str, TokenizerSource]:
        """Return the possible names of the cache, each with its tokenizer. There are two if the documents must decide.

        Raise UserError if the run was started with another name.
        """
        names = {fingerprint_of(digest, form.identity): form for form in self.tokenizer.forms()}
        known = self.how.fingerprint
        if known not in names:
            require_name(known, next(iter(names)), self.hint)
            return names
        return {known: names[known]}

    def found(self) -> TokenCache | None:
        """Return the cache if it exists and can be named without reading; raise FormatError for edited files."""
        digest = self.origin.digest()
        folders = [self.root / name for name in self.names(digest)] if digest is not None else []
        folder = next(filter(is_current, reversed(folders)), None)
        if folder is None:
            return None
        require_unchanged(self.root, folder.name, self.origin.whole_files())
        return open_cache(folder)

    def built(self) -> TokenCache:
        """Return the cache. Build it unless it turns out to exist once the documents are read."""
        if self.how.before_build is not None:
            self.how.before_build()
        console = ConsoleProgress(what=f"preparing a token cache in {from_here(self.root)}")
        try:
            return self._built(self.how.progress or console, console)
        finally:
            console.close()

    def _built(self, progress: Progress, console: ConsoleProgress) -> TokenCache:
        source = self.origin.read(progress)
        names = self.names(source.digest())
        name = next(filter(lambda name: is_current(self.root / name), reversed(names)), "")
        if name:
            cache = open_cache(self.root / name)
        else:
            name = _name_of_texts(names, source)
            cache = build_cache(self.root, name, source, names[name], progress)
        if (note := self.origin.accept(cache)) and self.how.progress is None:
            console(note, 0, 0)
        return cache

    def cache(self) -> TokenCache:
        """Find the cache or build it."""
        found = self.found()
        return self.built() if found is None else found


def _name_of_texts(names: dict[str, TokenizerSource], source: DocumentSource) -> str:
    """Return the name of the cache to build. If there are two, the presence of long pieces in the documents decides."""
    name, *others = names
    if not others:
        return name
    for _, text in source.train.texts():
        end_on_request("reading")
        if has_long_piece(text):
            return others[0]
    return name
