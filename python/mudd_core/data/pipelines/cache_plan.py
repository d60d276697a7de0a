"""The token cache that a start would build from plain text, estimated from the sizes of files that are not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.pipelines import PIPELINES, spec_of
from mudd_core.data.cache.folder import is_current
from mudd_core.data.cache.token_cache import TokenCache, fingerprint_of, open_cache
from mudd_core.data.documents.plain_text import PlainText
from mudd_core.data.pipelines.existing import existing_data
from mudd_core.data.pipelines.mixture.tokenizer import TRAINED, trained_config
from mudd_core.data.pipelines.text import in_records
from mudd_core.data.rows import PrepareOne
from mudd_core.data.sources.access import Access, cache_root
from mudd_core.data.sources.boundaries import rule_named
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer

_TEXT_BYTES_A_TOKEN = 3  # bytes of text per BPE token, a low estimate
# Memory in bytes of the processes of a build, measured with 10 MB and 100 MB of Python sources.
_ENCODING_BYTES, _TRAINING_BYTES, _TRAINING_BYTES_A_BYTE = 100 << 20, 68 << 20, 2.5


@dataclass(frozen=True)
class CacheToBuild:
    """Size estimates for the token cache that a start would build from plain text; 0 if a start builds none.

    size: bytes of the cache. memory: bytes of the child processes that train the tokenizer and encode the text.
    tokens: of the training text, counted if the cache exists; 0 if unknown. text: bytes of the text to encode.
    vocab_size: of a trained tokenizer that exists; 0 if there is none.
    """

    size: int
    root: Path
    memory: int = 0
    tokens: int = 0
    text: int = 0
    vocab_size: int = 0


def cache_to_build(config: Config, prepare_one: PrepareOne) -> CacheToBuild:
    """Estimate the token cache that a start would build from plain text; for a mixture, the caches of all sources.

    prepare_one: prepares records whose cache exists. Raise UserError if a start would refuse a source of the mixture.
    """
    names = source_names(config)
    if not names:
        return _of_records(config, prepare_one) or _of_one(config)
    trained = trained_config(config)
    found = _together(
        [source_cache(config, trained, name) for name in names], cache_root(config), trained is None
    )
    if found.vocab_size or trained is None or trained is config:
        return found
    tokenizer = find_tokenizer(trained.data.tokenizer, config.data.vocab_size, Access.of(config))
    return replace(found, vocab_size=tokenizer.make().vocab_size)


def source_cache(config: Config, trained: Config | None, name: str) -> CacheToBuild:
    """Estimate the cache of one source of a mixture. trained: the result of trained_config."""
    if trained is None:  # the name of the cache contains a hash of the tokenizer, so no cache of it exists
        return _of_one(source_config(config, name), look=False)
    return _of_one(source_config(trained, name))


def _together(found: Sequence[CacheToBuild], root: Path, trains: bool) -> CacheToBuild:
    """Return the sums over sources, which are encoded one after the other. trains: a tokenizer is trained on all."""
    memory, text = max(one.memory for one in found), sum(one.text for one in found)
    known = all(one.tokens for one in found)
    return CacheToBuild(
        sum(one.size for one in found),
        root,
        max(memory, _memory(TRAINED, text)) if trains and memory else memory,
        sum(one.tokens for one in found) if known else 0,
        text,
        next((one.vocab_size for one in found if one.vocab_size), 0),
    )


def _memory(kind: str, text: int) -> int:
    """Return the bytes of the child processes that encode `text` bytes with a tokenizer of this kind."""
    if kind == "bytes":
        return 0
    training = _TRAINING_BYTES + int(_TRAINING_BYTES_A_BYTE * text) if kind == TRAINED else 0
    return max(_ENCODING_BYTES, training)


def _of_records(config: Config, prepare_one: PrepareOne) -> CacheToBuild | None:
    """Return the tokens and vocabulary in the cache of records with a trained tokenizer; None without a cache."""
    settings = config.data
    spec = PIPELINES.get(settings.pipeline)
    if settings.tokenizer != TRAINED or spec is None or spec.ids_alone:
        return None
    try:
        if spec.plain_text and not in_records(settings):
            return None
        data = existing_data(config, prepare_one)
    except (FormatError, OSError, UserError):  # the start reports the error
        return None
    if data is None:
        return None
    return CacheToBuild(0, cache_root(config), tokens=data.train_tokens, vocab_size=data.vocab_size)


def _of_one(config: Config, *, look: bool = True) -> CacheToBuild:
    """Estimate the cache of a config without a mixture. look: False skips the search for an existing cache."""
    root, settings = cache_root(config), config.data
    known = spec_of(settings.pipeline).plain_text and not settings.dataset and not is_url(settings.path)
    if not known or is_url(settings.tokenizer):
        return CacheToBuild(0, root)
    try:
        if in_records(settings):
            return CacheToBuild(0, root)
        tokenizer = find_tokenizer(settings.tokenizer, settings.vocab_size, Access.of(config))
        text = PlainText(settings.path, root, rule_named(settings.document))
    except (OSError, UserError):  # the start reports the error in the text
        return CacheToBuild(0, root)
    if look and (name := _existing(text, tokenizer, root)):
        cache = _opened(root / name)
        return CacheToBuild(0, root) if cache is None else _of_cache(cache, root)
    size = sum(file.size for file in text.listing.files)
    tokens = size if tokenizer.kind == "bytes" else size // _TEXT_BYTES_A_TOKEN
    width = 2 if settings.vocab_size <= 65536 else 4
    return CacheToBuild(tokens * width, root, _memory(tokenizer.kind, size), tokens, size)


def _existing(text: PlainText, tokenizer: TokenizerSource, root: Path) -> str:
    """Return the name of the cache that a start would open; empty if it would build one."""
    digest = text.digest()
    names = [] if digest is None else [fingerprint_of(digest, form.identity) for form in tokenizer.forms()]
    return next((name for name in names if is_current(root / name)), "")


def _of_cache(cache: TokenCache, root: Path) -> CacheToBuild:
    return CacheToBuild(0, root, tokens=cache.n_train_tokens, vocab_size=cache.vocab_size)


def _opened(folder: Path) -> TokenCache | None:
    """Return the cache in a folder; None if it is damaged, which a start reports."""
    try:
        return open_cache(folder)
    except (FormatError, OSError):
        return None
