"""The data and the tokenizer of a run, as the hashes that its folder and its token caches have."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.members import object_in
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_names
from mudd_core.data.pipelines.mixture.kept import saved_sources
from mudd_core.data.sources.access import cache_root
from mudd_core.data.sources.notes import hashes_of
from mudd_core.data.tokenizers.files import VOCABULARIES
from mudd_core.run.records.facts import SEAL_FACT, data_fingerprint
from mudd_core.run.store.json_files import facts_of
from mudd_core.run.store.run_folder import RunFolder

_MOST_FILES = 1000
_OF_CACHE = {
    "content_hash": "ids",
    "train_documents": "trainDocuments",
    "valid_documents": "validDocuments",
    "train_tokens": "trainTokens",
    "valid_tokens": "validTokens",
}


@dataclass(frozen=True)
class DataFacts:
    """The data of a run. missing: the list to which a sentence is added for a fact that the files lack."""

    run: RunFolder
    config: Config
    missing: list[str]

    def sections(self) -> tuple[JsonObject, JsonObject | None]:
        """Return the sections of the data and of their tokenizer."""
        facts = facts_of(self.run)
        fingerprint, seal = data_fingerprint(facts), facts.get(SEAL_FACT)
        named = self.config.data.path or self.config.data.dataset
        data: JsonObject = {"name": Path(named).name} if named else {}
        data |= {"fingerprint": fingerprint} if fingerprint else {}
        data |= {"seal": seal} if isinstance(seal, str) else {}
        cache = self._cache(fingerprint)
        data |= _of_cache(cache)
        sources, files = self._sources(fingerprint), self._files(fingerprint)
        if sources:
            data["sources"] = sources
        if files:
            data["files"] = list[Json](files)
        if fingerprint and not (sources or files or "documents" in data):
            self.missing.append(
                "data.documents: the token cache of this run is gone, or its pipeline keeps no such hash"
            )
        return data, self._tokenizer(cache)

    def _sources(self, fingerprint: str) -> JsonObject:
        """Return the data of each source of a mixture by name; empty for other runs, and if they are unknown."""
        names = source_names(self.config)
        for root in self._roots() if fingerprint and names else ():
            if prints := saved_sources(root, fingerprint, names):
                return {name: self._source(name, prints[name]) for name in names}
        return {}

    def _source(self, name: str, fingerprint: str) -> JsonObject:
        cache = self._cache(fingerprint)
        found = _of_cache(cache)
        files = self._files(fingerprint)
        if not files and "documents" not in found:
            self.missing.append(
                f"data.sources.{name}.documents: its token cache is gone, or keeps no such hash"
            )
        return {"fingerprint": fingerprint, **found, **({"files": list[Json](files)} if files else {})}

    def _roots(self) -> list[Path]:
        return [cache_root(self.config), self.run.path.parent / "cache"]

    def _cache(self, fingerprint: str) -> JsonObject:
        """Return cache.json of the run's token cache; empty without it."""
        folders = [root / fingerprint for root in self._roots() if fingerprint]
        return next(filter(None, (object_in(folder / "cache.json") for folder in folders)), {})

    def _files(self, fingerprint: str) -> list[str]:
        """Return the SHA-256 of each file that the cache was built from; empty if the cache has no such notes."""
        for root in self._roots() if fingerprint else ():
            for name in (fingerprint, f"chat-{fingerprint}"):
                if found := hashes_of(root, name):
                    return found if len(found) <= _MOST_FILES else []
        return []

    def _tokenizer(self, cache: JsonObject) -> JsonObject | None:
        found: JsonObject = {"name": Path(self.config.data.tokenizer).name}
        if isinstance(sha256 := cache.get("tokenizer_hash"), str):
            found["sha256"] = sha256
        elif names := [name for name in VOCABULARIES if (self.run.path / name).is_file()]:
            found["sha256"] = hashlib.sha256(read_bytes(self.run.path / names[0])).hexdigest()
        elif found["name"] != "bytes":
            self.missing.append("tokenizer.sha256: the run has no file of its tokenizer")
        return found


def _of_cache(cache: JsonObject) -> JsonObject:
    """Return the hashes and numbers of a token cache. Of plain text, `documents` is a hash of all bytes."""
    found = {ours: cache[name] for name, ours in _OF_CACHE.items() if name in cache}
    if "corpus_hash" in cache:
        found["documents" if "corpus" in cache else "listing"] = cache["corpus_hash"]
    return found
