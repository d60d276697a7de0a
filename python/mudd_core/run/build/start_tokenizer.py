"""The tokenizer of a run that starts from other weights: the source's own, or one whose ids mean the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mudd_core import _core
from mudd_core.base.errors import UserError, write_error
from mudd_core.base.storage import is_bucket, readable
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.config.pipelines import spec_of
from mudd_core.data import pipelines
from mudd_core.data.cache.token_cache import open_cache
from mudd_core.data.pipelines import Prepared
from mudd_core.data.pipelines.document_data import DocumentData
from mudd_core.data.sources.access import Access, cache_root
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer, needs_its_folder
from mudd_core.run.build.start_source import run_and_step, start_path
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.json_files import facts_of, read_saved_config
from mudd_core.run.store.resumed_config import TRAINED
from mudd_core.run.store.run_folder import RunFolder

Found = TypeVar("Found")
_JSON = "tokenizer.json"


@dataclass(frozen=True)
class SourceTokenizer:
    """The tokenizer that loaded weights were trained with. name: as data.tokenizer names it.

    kept: whether the file is in a token cache or work directory, which may be removed: a new run copies it.
    """

    found: TokenizerSource
    name: str
    kept: bool


def with_source_tokenizer(config: Config, folder: RunFolder | None) -> tuple[Config, str, str]:
    """Return the config with the tokenizer of start.load_parameters_path, a line for the user, and a warning.

    data.tokenizer=bpe takes the source's; a named tokenizer must have the same ids, else UserError (start.force allows
    it). folder: the new run's, for a copy of a tokenizer that only a cache has; None names it where it is.
    """
    data = config.data
    if not config.start.load_parameters_path or config.start.force or spec_of(data.pipeline).ids_alone:
        return config, "", ""
    source = tokenizer_of(config)
    if data.tokenizer != TRAINED:
        if source is not None:
            own = find_tokenizer(data.tokenizer, data.vocab_size, Access.of(config))
            path = config.start.load_parameters_path
            require_same_ids(path, source, own, data.tokenizer, ", or set start.force=true")
        return config, "", ""
    text = _prepared(config)
    if text is not None and text.tokenizer is None:  # ids of a reader
        return config, "", ""
    if source is None:
        return config, "", _unknown(config)
    if text is not None and same_ids(source.found, _of_cache(text)):
        return config, "", ""
    name = _keep(source.found, folder) if source.kept and folder is not None else source.name
    note = f"data.tokenizer={name}: the tokenizer of {config.start.load_parameters_path}"
    return replace_path(config, "data.tokenizer", name), note, ""


def require_same_ids(
    path: str, source: SourceTokenizer, own: TokenizerSource, name: str, way_out: str = ""
) -> None:
    """Raise UserError if the tokenizer that data.tokenizer names has other ids than that of the weights.

    way_out: the end of the message, if there is another one than leaving data.tokenizer out.
    """
    if not same_ids(source.found, own):
        raise UserError(
            f"[start] data.tokenizer: expected the tokenizer of the weights in {path}, {_described(source.found)}, got "
            f"{name}, {_described(own)}, whose ids mean something else; leave data.tokenizer out to take theirs "
            f"({source.name}){way_out}"
        )


def same_ids(one: TokenizerSource, other: TokenizerSource) -> bool:
    """Whether two tokenizers give the same ids to the same text."""
    if one.kind != other.kind:
        return False
    return one.data == other.data or (one.kind == "json" and _model(one) == _model(other))


def _model(tokenizer: TokenizerSource) -> object:
    """The vocabulary and merges of a tokenizer.json, whatever its layout."""
    content = json.loads(tokenizer.data)
    return content.get("model") if isinstance(content, dict) else None


def _described(tokenizer: TokenizerSource) -> str:
    size = f"{tokenizer.make().vocab_size:,} ids"
    if tokenizer.kind == "bytes":
        return size
    return f"{size} ({tokenizer.kind} {tokenizer.identity.partition(':')[2][:12]})"


def _unknown(config: Config) -> str:
    return (
        f"[start] {config.start.load_parameters_path} names no tokenizer: a bpe trained on the text of this run is "
        "taken for theirs; set data.tokenizer to the one that the weights were trained with"
    )


class _NotBuiltError(Exception):
    """There is no token cache yet."""


def _prepared(config: Config) -> Prepared | None:
    """The data of a config whose token cache exists; None where one would have to be built."""

    def refuse() -> None:
        raise _NotBuiltError

    try:
        return pipelines.prepare(config, progress=lambda *_: None, before_build=refuse)
    except _NotBuiltError:
        return None


def _of_cache(text: Prepared) -> TokenizerSource:
    """The tokenizer.json that the token cache of a trained bpe keeps."""
    assert isinstance(text, DocumentData)
    return find_tokenizer(str(text.cache.path / _JSON), 0)


def _keep(tokenizer: TokenizerSource, folder: RunFolder) -> str:
    """Copy a tokenizer.json into the work directory of the run that needs it; return its path."""
    file = folder.source_tokenizer_file
    try:
        _core.replace_file(str(file), tokenizer.data)
    except OSError as error:
        raise write_error(file, error) from error
    return str(file)


def tokenizer_of(config: Config) -> SourceTokenizer | None:
    """The tokenizer of what start.load_parameters_path names; None where nothing says which one it is."""
    if is_bucket(readable(config.start.load_parameters_path, config.storage.map)):
        return None  # a plan fetches nothing
    path = start_path(config)
    run, _ = run_and_step(path, False)
    if run is None:
        file = path / _JSON
        if not file.is_file():
            return None
        name = str(path if needs_its_folder(file) else file)
        return SourceTokenizer(find_tokenizer(name, 0), name, False)
    if not run.holds_run:
        return None
    saved = read_saved_config(run)
    if spec_of(saved.data.pipeline).ids_alone:
        return None
    fingerprint, name = data_fingerprint(facts_of(run)), saved.data.tokenizer
    if name == TRAINED:
        return _trained(config, saved, fingerprint) if fingerprint else None
    if name == "bytes" and not fingerprint and saved.model.vocab_size != 257:
        return None  # an import that took the weights alone
    moved = run.path / Path(name).name  # the folder had another path when it was saved
    if not Path(name).exists() and moved.exists():
        name = str(moved.absolute())
    kept = Path(name).is_file() and run.path.resolve() in Path(name).resolve().parents
    access = Access.of(saved, again=True)
    found = _or_lost(config, lambda: find_tokenizer(name, saved.data.vocab_size, access))
    return None if found is None else SourceTokenizer(found, name, kept)


def _trained(config: Config, saved: Config, fingerprint: str) -> SourceTokenizer | None:
    """The bpe that a run was trained with, from its token cache, which is built again if it is gone."""
    roots = (cache_root(one) for one in (saved, config))
    folder = next((root / fingerprint for root in roots if (root / fingerprint).is_dir()), None)
    if folder is not None:
        folder = open_cache(folder).path
    else:
        text = _or_lost(config, lambda: pipelines.prepare(saved, fingerprint=fingerprint))
        if text is None or text.tokenizer is None:
            return None
        folder = Path(_of_cache(text).file).parent
    file = str(folder / _JSON)
    return SourceTokenizer(find_tokenizer(file, 0), file, True)


def _or_lost(config: Config, find: Callable[[], Found]) -> Found | None:
    """The source's data or tokenizer; if lost, None for a named data.tokenizer and UserError for data.tokenizer=bpe."""
    try:
        return find()
    except UserError as error:
        if config.data.tokenizer != TRAINED:
            return None
        raise UserError(
            f"[start] {config.start.load_parameters_path}: its tokenizer is not found: {error}\n"
            "Set data.tokenizer to the tokenizer of these weights"
        ) from error
