"""Find the ids of BOS, EOS and padding, by tokenizer_config.json or by their usual names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Json, JsonObject

END_OF_TEXT = "<|endoftext|>"
# Names of the EOS token in known model families, the most likely first, and names of their BOS token.
END_NAMES = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|im_end|>")
BEGIN_NAMES = ("<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[BOS]")


class ShownByIds:
    """A base class for tokenizers whose repr shows the size of the vocabulary and the special ids."""

    vocab_size: int
    bos_id: int | None
    eos_id: int
    pad_id: int | None
    stop_ids: frozenset[int] = frozenset()
    of_weights = False  # made by for_prompts: larger ids have no text, as in transformers

    @property
    def ids_below(self) -> int:
        """The bound of the ids to sample; 0: none, as transformers has none."""
        return 0 if self.of_weights else self.vocab_size

    def known(self, ids: Iterable[int]) -> list[int]:
        """Return the ids that may have text; raise ValueError for ids outside the vocabulary.

        A tokenizer of weights leaves out the larger ids of a model that has more ids than its tokenizer.
        """
        found = [int(i) for i in ids]
        if self.of_weights:
            found = [i for i in found if i < self.vocab_size]
        if any(not 0 <= i < self.vocab_size for i in found):
            raise ValueError(f"[tokenizer] ids: expected all in [0, {self.vocab_size}), got {found[:16]}")
        return found

    def __repr__(self) -> str:
        ids = {"bos_id": self.bos_id, "eos_id": self.eos_id, "pad_id": self.pad_id}
        known = "".join(f", {name}={number}" for name, number in ids.items() if number is not None)
        return f"{type(self).__name__}(vocab_size={self.vocab_size}{known})"


@dataclass(frozen=True)
class SpecialIds:
    """The ids of special tokens that tokenizer_config.json names; None for the others.

    begins, ends: the template adds BOS, EOS; for models that store no template (tokenizer.model). names: a special
    token's name in text becomes this token, as in the original programs.
    """

    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    begins: int | None = None
    ends: int | None = None
    names: int | None = None

    def text(self) -> str:
        """Return the string for a tokenizer's identity, such as ` bos=1 eos=2`; empty if no id is named."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return "".join(f" {name}={value}" for name, value in values if value is not None)

    @classmethod
    def of_text(cls, text: str) -> SpecialIds:
        """Parse the result of `text`; raise ValueError for anything else."""
        found = dict(word.split("=") for word in text.split())
        if set(found) - {field.name for field in fields(cls)}:
            raise ValueError(f"expected ids of bos, eos and pad, got {text!r}")
        return cls(**{name: int(value) for name, value in found.items()})


def read_config(data: bytes, file: str) -> JsonObject:
    """Return the object in a JSON file of at most 64 MiB next to the vocabulary; raise FormatError if it has none."""
    if len(data) > 2**26:
        raise FormatError(file, 0, f"{len(data)} bytes: expected at most {2**26}")
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(file, 0, f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise FormatError(file, 0, "expected a JSON object")
    return content


def token_of(config: Mapping[str, Json], name: str, file: str) -> str | None:
    """Return the token under a name such as eos_token, which is a string or an object with a string as `content`."""
    token = config.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    if token is not None and not isinstance(token, str):
        raise FormatError(file, 0, f"{name}: expected a string or null, got {str(token)[:80]}")
    return token


def flag_of(config: Mapping[str, Json], name: str, default: bool, file: str) -> bool:
    """Return the boolean under a name."""
    value = config.get(name, default)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise FormatError(file, 0, f"{name}: expected true or false, got {str(value)[:80]}")
    return value


def named_ids(config: Mapping[str, Json], ids: Mapping[str, int], file: str) -> SpecialIds:
    """Return the ids of bos_token, eos_token and pad_token; raise FormatError if EOS is not in the vocabulary."""
    found: dict[str, int | None] = {}
    for name in ("bos", "eos", "pad"):
        token = token_of(config, f"{name}_token", file)
        if token is not None and token not in ids:
            if name == "eos":
                raise FormatError(file, 0, f"eos_token: {token[:80]!r} is not in the vocabulary")
            continue  # LLaMA folders name a padding token that is not in the vocabulary
        found[name] = None if token is None else ids[token]
    return SpecialIds(**found)


def usual_end(ids: Mapping[str, int]) -> int | None:
    """Return the id of EOS by its usual names; None if there is none."""
    return next((ids[name] for name in END_NAMES if name in ids), None)


def usual_begin(ids: Mapping[str, int]) -> int | None:
    """Return the id of BOS by its usual names; the GPT-2 family uses its EOS token for it."""
    begin = next((ids[name] for name in BEGIN_NAMES if name in ids), None)
    return ids.get(END_OF_TEXT) if begin is None else begin


def end_of_document(ids: dict[str, int], file: str) -> int:
    """Return the id that ends a document; raise UserError if the vocabulary has none. file: for the message."""
    end = usual_end(ids)
    if end is None:
        raise UserError(
            f"[data.tokenizer] {file}: no end-of-document token; expected one of {', '.join(END_NAMES)}, or a "
            "tokenizer_config.json next to it with eos_token, and the folder in data.tokenizer"
        )
    return end
