"""The loss of guessing, to which a run that has diverged is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mudd_core.base.types import Json, JsonObject

WINDOW = 10  # logged updates whose mean loss is compared with it
MODEL_VOCABULARY = "vocab_size"  # of run.json: the tokens that the model has
VOCABULARY = "vocab_size_in_use"  # of run.json, if the tokenizer has fewer


def vocabulary_facts(of_model: int, of_text: int) -> JsonObject:
    """Return what run.json says of the vocabulary of a model and of its text."""
    return {MODEL_VOCABULARY: of_model, **({VOCABULARY: of_text} if 0 < of_text < of_model else {})}


def vocabulary_in_use(facts: Mapping[str, Json]) -> int:
    """Return the number of tokens that a run may meet; 0 if run.json does not say it."""
    found = facts.get(VOCABULARY, facts.get(MODEL_VOCABULARY))
    return found if isinstance(found, int) else 0


def guessing_loss(vocabulary: int) -> float:
    """Return the loss (nats) of a model that gives all tokens the same probability; infinity if it is unknown."""
    return math.log(vocabulary) if vocabulary > 1 else math.inf


def guessing_text(vocabulary: int) -> str:
    """Return the loss of guessing for a message."""
    return f"{guessing_loss(vocabulary):.4f} (ln {vocabulary:,}), the loss of guessing"
