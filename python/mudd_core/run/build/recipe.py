"""Notes about the text and the tokenizer of a published recipe, if this run uses others."""

from __future__ import annotations

from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of


def recipe_note(config: Config) -> str:
    """Return lines about the recipe's text and tokenizer, the ones that the run uses instead, and why losses differ.

    The list is empty if the config names no recipe, or if the user has set data.path and data.tokenizer. Data without
    text need no tokenizer.
    """
    data = config.data
    named, used, why, give = [], [], [], []
    if data.recipe_text and not data.path:
        named.append(f"the text {data.recipe_text}")
        used.append("the sources of Python's standard library")
        why.append("another text is easier or harder to predict")
        give.append("data.path=FOLDER")
    if data.recipe_tokenizer and data.tokenizer in ("bpe", "bytes") and not spec_of(data.pipeline).ids_alone:
        named.append(f"the tokenizer {data.recipe_tokenizer}")
        trained = f"a BPE vocabulary of {data.vocab_size:,} trained on the run's text"
        used.append("raw bytes" if data.tokenizer == "bytes" else trained)
        why.append("a loss is a mean over tokens, and another tokenizer splits the text into other tokens")
        give.append("data.tokenizer=FOLDER/tokenizer.json")
    if not named:
        return ""
    reasons = ";\n  ".join(why)
    return (
        f"note: the recipe names {' and '.join(named)};\n"
        f"  this run uses {' and '.join(used)}.\n"
        f"  Its loss is not comparable with the recipe's: {reasons}.\n"
        f"  To follow the recipe, give: {' '.join(give)}"
    )


def printable(text: str) -> str:
    """Return a name from untrusted settings, truncated and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:80])
