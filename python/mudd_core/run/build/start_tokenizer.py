"""The tokenizer of a run that starts from other weights: the source's tokenizer, or one with the same ids."""

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
from mudd_core.data.pipelines.existing import NoCacheError, without_build
from mudd_core.data.pipelines.mixture.data import MixedData
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
    """The tokenizer of loaded weights. name: value of data.tokenizer.

    kept: the file is in a token cache or work directory. A new run copies it, because the folder may be removed.
    """

    found: TokenizerSource
    name: str
    kept: bool


def with_source_tokenizer(config: Config, folder: RunFolder | None) -> tuple[Config, str, str]:
    """Return the config with the tokenizer of start.load_parameters_path, a line for the user, and a warning.

    data.tokenizer=bpe means the source's tokenizer. Raise UserError if the config names a tokenizer with other ids,
    unless start.force is set. folder: of the new run, for a copy of a tokenizer from a cache; None: do not copy.
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
    if text is not None and text.tokenizer is None:  # ids from a user's reader
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
    """Raise UserError if the tokenizer of data.tokenizer has other ids than the tokenizer of the weights.

    way_out: the remedy in the message; by default, to leave out data.tokenizer.
    """
    if not same_ids(source.found, own):
        raise UserError(
            f"[start] data.tokenizer: expected the tokenizer of the weights in {path}, "
            f"{_described(source.found)}, got {name}, {_described(own)}, which assigns other tokens "
            "to the ids; leave data.tokenizer out to use the tokenizer of the weights "
            f"({source.name}){way_out}"
        )


def same_ids(one: TokenizerSource, other: TokenizerSource) -> bool:
    """Return True if two tokenizers have the same ids for the same text."""
    if one.kind != other.kind:
        return False
    return one.data == other.data or (one.kind == "json" and _model(one) == _model(other))


def _model(tokenizer: TokenizerSource) -> object:
    """Return the vocabulary and merges of a tokenizer.json, independently of its formatting."""
    content = json.loads(tokenizer.data)
    return content.get("model") if isinstance(content, dict) else None


def _described(tokenizer: TokenizerSource) -> str:
    size = f"{tokenizer.make().vocab_size:,} ids"
    if tokenizer.kind == "bytes":
        return size
    return f"{size} ({tokenizer.kind} {tokenizer.identity.partition(':')[2][:12]})"


def _unknown(config: Config) -> str:
    return (
        f"[start] {config.start.load_parameters_path} names no tokenizer, so a BPE tokenizer is "
        "trained on the text of this run; set data.tokenizer to the tokenizer that the weights were "
        "trained with"
    )


def _prepared(config: Config) -> Prepared | None:
    """Return the data of a config if its token cache exists; None if it would have to be built."""
    how = without_build()
    try:
        return pipelines.prepare(config, progress=how.progress, before_build=how.before_build)
    except NoCacheError:
        return None


def _of_cache(text: Prepared) -> TokenizerSource:
    """Return the tokenizer.json in the token cache of a trained bpe."""
    found = text.of[0] if isinstance(text, MixedData) else text
    assert isinstance(found, DocumentData)
    return find_tokenizer(str(found.cache.path / _JSON), 0)


def _keep(tokenizer: TokenizerSource, folder: RunFolder) -> str:
    """Copy a tokenizer.json into the work directory of the run that needs it; return its path."""
    file = folder.source_tokenizer_file
    try:
        _core.replace_file(str(file), tokenizer.data)
    except OSError as error:
        raise write_error(file, error) from error
    return str(file)


def tokenizer_of(config: Config) -> SourceTokenizer | None:
    """Return the tokenizer of start.load_parameters_path; None if it is unknown."""
    if is_bucket(readable(config.start.load_parameters_path, config.storage.map)):
        return None  # a plan does not download anything
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
        return None  # the source is an import of only the weights
    moved = run.path / Path(name).name  # the folder may have been moved since it was saved
    if not Path(name).exists() and moved.exists():
        name = str(moved.absolute())
    kept = Path(name).is_file() and run.path.resolve() in Path(name).resolve().parents
    access = Access.of(saved, again=True)
    found = _or_lost(config, lambda: find_tokenizer(name, saved.data.vocab_size, access))
    return None if found is None else SourceTokenizer(found, name, kept)


def _trained(config: Config, saved: Config, fingerprint: str) -> SourceTokenizer | None:
    """Return the bpe of a run from its token cache, which is rebuilt if it is missing."""
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
    """Return the source's data or tokenizer. If it is lost, return None, or raise UserError with data.tokenizer=bpe."""
    try:
        return find()
    except UserError as error:
        if config.data.tokenizer != TRAINED:
            return None
        raise UserError(
            f"[start] {config.start.load_parameters_path}: its tokenizer is not found: {error}\n"
            "Set data.tokenizer to the tokenizer of these weights"
        ) from error
