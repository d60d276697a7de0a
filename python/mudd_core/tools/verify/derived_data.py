"""Compare the hashes of ids and tokenizer in a statement with the hashes that a derived run has."""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config
from mudd_core.data.tokenizers.files import VOCABULARIES
from mudd_core.provenance.check import sha256_of
from mudd_core.provenance.data_facts import DataFacts
from mudd_core.provenance.statement import Statement
from mudd_core.run.store.run_folder import RunFolder

_IDS, _TOKENIZER = "ids", "sha256"


def derived_data(statement: Statement, run: RunFolder, config: Config) -> str:
    """Return the first hash of ids or tokenizer that differs from the derived run's; empty if none does."""
    data, tokenizer = DataFacts(run, config, []).sections()
    section = statement.section("data")
    pairs = [("data.ids", section.get(_IDS), data.get(_IDS))]
    pairs += _of_sources(section.get("sources"), data.get("sources"))
    wanted, got = statement.section("tokenizer").get(_TOKENIZER), (tokenizer or {}).get(_TOKENIZER)
    # A statement that was written without the token cache has the hash of the run's own file.
    if wanted not in _hashes_of_files(run):
        pairs.append(("tokenizer.sha256", wanted, got))
    for name, wanted, got in pairs:
        if wanted is not None and got is not None and wanted != got:
            return f"{name}: derived again, it is {_digits(got)}, the statement says {_digits(wanted)}"
    return ""


def _of_sources(wanted: Json, got: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield the name and both hashes of the ids of each source of a mixture."""
    theirs, ours = (one if isinstance(one, dict) else {} for one in (wanted, got))
    for name in ours:
        yield f"data.sources.{name}.ids", _member(theirs, name), _member(ours, name)


def _member(sources: JsonObject, name: str) -> Json:
    source = sources.get(name)
    return source.get(_IDS) if isinstance(source, dict) else None


def _hashes_of_files(run: RunFolder) -> list[Json]:
    return [sha256_of(run.path / name) for name in VOCABULARIES if (run.path / name).is_file()]


def _digits(value: Json) -> str:
    text = str(value)[:80]
    return text if text.isprintable() else ascii(text)
