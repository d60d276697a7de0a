"""The tokenizer and the chat template of a run, for commands that read it without its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.config.pipelines import spec_of
from mudd_core.data.chat.kept_template import kept_template
from mudd_core.data.chat.templates import ChatTemplate, find_template
from mudd_core.data.chat.turn_end import TurnEnd, turn_end
from mudd_core.data.sources.access import Access, cache_root
from mudd_core.data.tokenizers.files import has_vocabulary
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.json_files import read_facts
from mudd_core.run.store.run_folder import RunFolder


def asked_tokenizer(name: str, config: Config, vocab_size: int) -> Tokenizer:
    """Return the tokenizer of --tokenizer; raise UserError if there is none or it has more ids than the model."""
    if name == "bpe":
        raise UserError("[arguments] --tokenizer: expected bytes, a file, a folder or a name, got bpe")
    found = find_tokenizer(name, 0, Access.of(config)).make()
    if found.vocab_size > vocab_size:
        raise UserError(
            f"[arguments] --tokenizer: expected at most the model's {vocab_size:,} ids, got {found.vocab_size:,} "
            f"({name})"
        )
    return found


def text_bytes_per_target(
    tokenizer: Tokenizer, batches: Iterable[Mapping[str, npt.NDArray[np.int32]]]
) -> float:
    """Return the bytes of decoded text per counted target of the batches; the end of a document has no bytes."""
    decoded, size, count = tokenizer.stream(), 0, 0
    for batch in batches:
        targets = batch["targets"]
        counted = targets[targets >= 0]
        if counted.size and (largest := int(counted.max())) >= tokenizer.vocab_size:
            raise UserError(
                "[report] --tokenizer: expected the tokenizer of the validation ids, which go up to "
                f"{largest:,}, got a tokenizer of {tokenizer.vocab_size:,} ids"
            )
        count += counted.size
        size += sum(len(decoded(int(i)).encode()) for i in counted if i != tokenizer.eos_id)
    return size / count if count else 0.0


def end_ids(folder: Path) -> list[int]:
    """Return the ids of the end tokens in a folder's generation_config.json; none without the file."""
    named = object_in(folder / "generation_config.json").get("eos_token_id")
    found = named if isinstance(named, list) else [named]
    return [number for number in found if isinstance(number, int) and not isinstance(number, bool)]


def for_prompts(tokenizer: Tokenizer, config: Config, run: RunFolder) -> Tokenizer:
    """Return the tokenizer for prompts of a run. With imported weights, it encodes as transformers does."""
    named = Path(config.data.tokenizer)
    place = named if named.name == IMPORTED else run.imported_folder
    if not place.is_dir() and not spec_of(config.data.pipeline).conversations:
        return tokenizer
    turn = run_turn_end(config, run, tokenizer)
    trained = [] if turn is None or turn.token is None else [turn.token]
    return tokenizer.for_prompts([*end_ids(place), *trained])


def own_tokenizer(config: Config, run: RunFolder) -> Tokenizer | None:
    """Return the tokenizer of a run for its prompts; None for data without text, or if its files are missing."""
    found = _kept_tokenizer(config, run)
    return None if found is None else for_prompts(found, config, run)


def _kept_tokenizer(config: Config, run: RunFolder) -> Tokenizer | None:
    """Return the tokenizer in the run's folder; runs of earlier versions have it only in the token cache."""
    if not has_text(config):
        return None
    name = config.data.tokenizer
    if name == "bytes":
        return find_tokenizer(name, 0).make()
    caches = (cache_root(config), run.path.parent / "cache")
    imported = [run.imported_folder] if Path(name).name == IMPORTED else []
    folders = [run.path, *imported, *(cache / (data_fingerprint(read_facts(run)) or ".") for cache in caches)]
    for folder in folders:
        if has_vocabulary(folder):
            return find_tokenizer(str(folder.absolute()), 0).make()
    return None if name == "bpe" else find_tokenizer(name, 0, Access.of(config)).make()


def has_text(config: Config) -> bool:
    """Return True if the sequences of the run come from text."""
    from mudd_core.data.pipelines import user_readers

    data = config.data
    if spec_of(data.pipeline).ids_alone:
        return False
    reader = user_readers.find_reader(data.pipeline)
    return reader is None or user_readers.gives_text(data, reader)


def run_template(config: Config, run: RunFolder, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the template of a chat run, from the cache if it exists; None if the template is lost.

    Of a mixture, return the template of the first source.
    """
    if not spec_of(config.data.pipeline).conversations:
        return None
    fingerprint, sources = data_fingerprint(read_facts(run)), source_names(config)
    for root in map(Path, (cache_root(config), run.path.parent / "cache")):
        name = _of_first(root, fingerprint, sources[0]) if sources else fingerprint
        if (found := kept_template(root / f"chat-{name}")) is not None:
            return found
    try:
        settings = source_config(config, sources[0]).data if sources else config.data
        return find_template(settings, tokenizer)
    except (UserError, FormatError):  # the template's file is missing
        return None


def _of_first(root: Path, fingerprint: str, source: str) -> str:
    """Return the fingerprint of a source of a mixture; empty if it is unknown."""
    from mudd_core.data.pipelines.mixture.kept import saved_sources

    return saved_sources(root, fingerprint, [source]).get(source, "")


def run_turn_end(config: Config, run: RunFolder, tokenizer: Tokenizer) -> TurnEnd | None:
    """Return how the template of a chat run ends an answer; None for other runs, or if the template is lost."""
    template = run_template(config, run, tokenizer)
    return None if template is None else turn_end(template, tokenizer)
