"""Sizes of a model that its config may leave unset: vocabulary and longest sequence."""

from __future__ import annotations

import dataclasses

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.config import Config, ModelConfig


def resolved_model(config: Config, vocab_size: int) -> ModelConfig:
    """Return the model's config with unset sizes filled in; raise UserError if the vocabulary is too small."""
    asked = config.model.vocab_size
    if asked and asked < vocab_size:
        raise UserError(
            f"[config] model.vocab_size: expected at least {vocab_size}, the size of the tokenizer, "
            f"got {asked}; set 0 to use the size of the tokenizer"
        )
    longest = config.model.max_seq_len or config.train.seq_len
    return dataclasses.replace(config.model, vocab_size=asked or vocab_size, max_seq_len=longest)


def expected_vocabulary(config: Config, *, copied: bool = False) -> int:
    """Return the size of the vocabulary if it is known without reading the text.

    copied: a tokenizer from a URL is already on this machine.
    """
    from mudd_core.data.pipelines import reads_ids
    from mudd_core.data.tokenizers.tokenizer import LOWEST_BPE_SIZE

    asked = config.model.vocab_size
    tokenizer = config.data.tokenizer
    if asked and ((is_url(tokenizer) and not copied) or reads_ids(config.data)):
        return asked
    if asked and tokenizer == "bpe":  # the trained vocabulary may be smaller than data.vocab_size
        return max(asked, LOWEST_BPE_SIZE)
    return max(asked, _tokenizer_size(config, copied))


def _tokenizer_size(config: Config, copied: bool) -> int:
    if config.data.tokenizer == "bpe":
        return config.data.vocab_size
    if config.data.tokenizer == "bytes":
        return 257
    from mudd_core.data.sources.access import Access
    from mudd_core.data.tokenizers.source import find_tokenizer

    access = Access.of(config, again=copied)
    return find_tokenizer(config.data.tokenizer, config.data.vocab_size, access).make().vocab_size
