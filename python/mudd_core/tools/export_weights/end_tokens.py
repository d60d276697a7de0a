"""The tokens that end generated text, by the files of a folder for transformers."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import Json
from mudd_core.data.tokenizers.folder import CONFIG
from mudd_core.data.tokenizers.special_tokens import read_config, token_of
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.tools.export_weights.template import Trained


def end_ids(files: Mapping[str, bytes], tokenizer: Tokenizer, trained: Trained | None) -> list[int]:
    """Return the ids that end generated text, EOS first.

    files: the tokenizer's files of the folder. tokenizer: of the run. trained: its chat template, whose end of a turn
    may be the EOS of the files.
    """
    config = read_config(files[CONFIG], CONFIG) if CONFIG in files else {}
    is_turn = trained is not None and token_of(config, "eos_token", CONFIG) == trained.end_name
    first = [trained.end] if trained and is_turn and trained.end is not None else []
    generation = read_config(files.get("generation_config.json", b"{}"), "generation_config.json")
    named = generation.get("eos_token_id")
    more: list[Json] = named if isinstance(named, list) else [named]
    known = [one for one in more if isinstance(one, int) and 0 <= one < tokenizer.vocab_size]
    return [*dict.fromkeys([*first, tokenizer.eos_id, *known])]
