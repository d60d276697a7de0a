"""The tokenizer of a mixture with data.tokenizer=bpe: one, trained on all sources in the order of data.mix.

It is stored in the folder of caches. A hash of the documents names it, so any mixture of the same sources in the same
order uses it again. Documents and tokenizer name the cache of a source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import SaveError
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.pipelines import spec_of
from mudd_core.data.cache.folder import is_current, locked
from mudd_core.data.documents.plain_text import PlainText
from mudd_core.data.documents.source import DocumentSource, document_source
from mudd_core.data.pipelines.existing import NoCacheError, is_here, without_build
from mudd_core.data.pipelines.mixture.names import naming
from mudd_core.data.pipelines.text import in_records
from mudd_core.data.progress import UNKNOWN, ConsoleProgress, end_on_request
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.access import cache_root
from mudd_core.data.sources.boundaries import rule_named
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.sources.hub_datasets import with_local_sources
from mudd_core.data.tokenizers.bpe_pieces import has_long_piece
from mudd_core.data.tokenizers.bpe_training import PHASE, train_bpe
from mudd_core.data.tokenizers.source import TokenizerSource

TRAINED = "bpe"


def trained_config(config: Config) -> Config | None:
    """Return the config of a mixture with the tokenizer of all sources; None if a start would train or fetch it.

    A config that names another tokenizer is unchanged. Raise UserError if a source cannot be read.
    """
    names = source_names(config)
    if not names or config.data.tokenizer != TRAINED:
        return config
    if not all(is_here(source_config(config, name).data) for name in names):
        return None
    try:
        return shared_tokenizer(config, names, without_build(), {})
    except NoCacheError:
        return None


def shared_tokenizer(
    config: Config, names: Sequence[str], how: Preparation, saved: Mapping[str, str]
) -> Config:
    """Return the config with the tokenizer that all sources share; unchanged if data.tokenizer is not bpe.

    saved: the caches of a run that was started before; if all exist, no tokenizer is needed.
    """
    spec, root = spec_of(config.data.pipeline), cache_root(config)
    if config.data.tokenizer != TRAINED or spec.ids_alone or spec.conversations:
        return config
    if saved and all(is_current(root / name) for name in saved.values()):
        return config
    console = ConsoleProgress(what=f"training a tokenizer on {len(names)} sources")
    try:
        file = _trained(config, names, root, how, how.progress or console)
    finally:
        console.close()
    found: Config = replace_path(config, "data.tokenizer", str(file))
    return found


def _trained(config: Config, names: Sequence[str], root: Path, how: Preparation, progress: Progress) -> Path:
    origins: list[PlainText | DocumentSource] = []
    for name in names:
        with naming(name):
            origins.append(_origin(with_local_sources(source_config(config, name)), root))
    known = [origin.digest() for origin in origins]
    if None not in known and (file := _file(root, config, known)).is_file():
        return file
    if how.before_build is not None:
        how.before_build()
    sources: list[DocumentSource] = []
    for name, origin in zip(names, origins, strict=True):
        with naming(name):
            sources.append(origin.read(progress))
    file = _file(root, config, [source.digest() for source in sources])
    with locked(root, f"{file.stem}.lock", progress):
        if not file.is_file():
            trained = _train(config, sources, progress)
            try:
                _core.replace_file(str(file), trained)
            except OSError as error:
                raise SaveError(
                    f"[data.cache_dir] {file} cannot be written: {error.strerror or error}"
                ) from None
    return file


def _origin(config: Config, root: Path) -> PlainText | DocumentSource:
    data = config.data
    if spec_of(data.pipeline).plain_text and not in_records(data):
        return PlainText(data.path, root, rule_named(data.document))
    return document_source(data, "plain", hold_out=True)


def _file(root: Path, config: Config, digests: Sequence[str | None]) -> Path:
    identity = TokenizerSource(TRAINED, vocab_size=config.data.vocab_size).identity
    key = hashlib.sha256(json.dumps([identity, list(digests)]).encode()).hexdigest()[:16]
    return root / f"bpe-{key}.json"


def _train(config: Config, sources: Sequence[DocumentSource], progress: Progress) -> bytes:
    def report(phase: str, done: int, total: int) -> None:
        end_on_request(phase)
        progress(phase, done, total or UNKNOWN)

    def texts() -> Iterator[bytes]:
        for source in sources:
            for _, text in source.train.texts():
                yield text

    def splits() -> bool:
        for text in texts():
            end_on_request("reading")
            if has_long_piece(text):
                return True
        return False

    counts = [source.form.documents.get("train", 0) for source in sources]
    count = sum(counts) if all(counts) else 0
    report(PHASE, 0, count)
    return train_bpe(texts(), count, config.data.vocab_size, splits_long_pieces=splits(), report=report)
