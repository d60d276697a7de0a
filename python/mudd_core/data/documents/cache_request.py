"""The token cache of documents under a tokenizer: found by its name, or built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mudd_core.data.cache.folder import is_current, require_name
from mudd_core.data.cache.token_cache import TokenCache, fingerprint_of, open_cache
from mudd_core.data.documents.build import build_cache
from mudd_core.data.documents.source import DocumentSource
from mudd_core.data.progress import ConsoleProgress, end_on_request
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.sources.notes import require_unchanged
from mudd_core.data.tokenizers.bpe_pieces import has_long_piece
from mudd_core.data.tokenizers.source import TokenizerSource


class Origin(Protocol):
    """Where documents come from: a DocumentSource, or a text that must be read to know them (plain_text.py)."""

    def digest(self) -> str | None:
        """The name of the documents; None where only reading tells it."""

    def whole_files(self) -> Sequence[Path]:
        """Files whose edits the name may miss; see sources/notes.py."""

    def read(self, progress: Progress) -> DocumentSource:
        """The documents. UserError where there are none."""

    def accept(self, cache: TokenCache) -> str:
        """A note for the user about what was read, or an empty one; FormatError if the cache is not of that."""


@dataclass(frozen=True)
class CacheRequest:
    """A token cache that data ask for. root: of the caches. hint: what else gives a resumed run its data."""

    root: Path
    origin: Origin
    tokenizer: TokenizerSource
    how: Preparation
    hint: str = ""

    def names(self, digest: str) -> dict[str, TokenizerSource]:
        """Return the names that the cache may have, with their tokenizers: one, or two if only the documents decide.

        UserError if the run was started with another one.
        """
        names = {fingerprint_of(digest, form.identity): form for form in self.tokenizer.forms()}
        known = self.how.fingerprint
        if known not in names:
            require_name(known, next(iter(names)), self.hint)
            return names
        return {known: names[known]}

    def found(self) -> TokenCache | None:
        """The cache, if it is there and known without reading all documents. FormatError for edited files."""
        digest = self.origin.digest()
        folders = [self.root / name for name in self.names(digest)] if digest is not None else []
        folder = next(filter(is_current, reversed(folders)), None)
        if folder is None:
            return None
        require_unchanged(self.root, folder.name, self.origin.whole_files())
        return open_cache(folder)

    def built(self) -> TokenCache:
        """The cache, built unless reading shows that it is there."""
        if self.how.before_build is not None:
            self.how.before_build()
        console = ConsoleProgress(what=f"preparing a token cache in {self.root}")
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
        """The cache, found or built."""
        found = self.found()
        return self.built() if found is None else found


def _name_of_texts(names: dict[str, TokenizerSource], source: DocumentSource) -> str:
    """Return the name of the cache to build, which long pieces decide if there are two."""
    name, *others = names
    if not others:
        return name
    for _, text in source.train.texts():
        end_on_request("reading")
        if has_long_piece(text):
            return others[0]
    return name
