"""Read pairs of answers from records with `prompt`, `chosen` and `rejected`, as trl has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.conversations import Conversation, conversation_of
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.kept import Entry

_KEYS = ("prompt", "chosen", "rejected")


def pair_of(record: JsonObject, column: str) -> tuple[Conversation, Conversation]:
    """Return the conversations with the chosen and with the rejected answer; only the answers have a loss.

    Each value is a string or a list of messages. Without `prompt`, both lists start with the same messages, which are
    the prompt. column: a key that is ignored, because it contains messages in other records. Raise RefusedError for
    other records, and if both answers are equal.
    """
    prompt, chosen, rejected = _parts(record)
    if chosen == rejected:
        raise RefusedError("equal answers", "chosen and rejected are equal")
    rest = {name: value for name, value in record.items() if name not in (*_KEYS, column)}
    first, second = (_with_answer(rest, prompt, one) for one in (chosen, rejected))
    return first, second


def digest_of(chats: Iterable[Conversation]) -> bytes:
    """Return SHA-256 of the conversations of a record."""
    found = [one.digest() for one in chats]
    return found[0] if len(found) == 1 else hashlib.sha256(b"".join(found)).digest()


def whole_pairs(entries: Iterable[Entry | None]) -> Iterator[Entry]:
    """Yield the entries of pairs of which neither was rejected. entries: chosen and rejected by turns."""
    found = iter(entries)
    for chosen, rejected in zip(found, found, strict=True):
        if chosen is not None and rejected is not None:
            yield chosen
            yield rejected


def _parts(record: JsonObject) -> tuple[Json, Json, Json]:
    missing = [name for name in _KEYS[1:] if record.get(name) is None]
    chosen, rejected = (record.get(name) for name in _KEYS[1:])
    prompt = record.get("prompt")
    # A prompt that is a string repeats the first message of lists, as in UltraFeedback.
    if not isinstance(prompt, list) and isinstance(chosen, list) and isinstance(rejected, list):
        if shared := _shared(chosen, rejected):
            return chosen[:shared], chosen[shared:], rejected[shared:]
        if prompt is None:
            reason = "expected prompt, or the same first messages in chosen and rejected"
            raise RefusedError("no prompt", reason)
    if missing := [*(["prompt"] if prompt is None else []), *missing]:
        raise RefusedError(
            "missing keys",
            f"expected the keys prompt, chosen and rejected, got {', '.join(sorted(record)) or 'none'}; "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        )
    return prompt, chosen, rejected


def _shared(chosen: list[Json], rejected: list[Json]) -> int:
    """Return the number of first messages that are equal; each answer keeps at least one message."""
    most = min(len(chosen), len(rejected))
    if chosen == rejected:
        return most - 1
    return next((at for at in range(most) if chosen[at] != rejected[at]), most - 1)


def _with_answer(rest: JsonObject, prompt: Json, answer: Json) -> Conversation:
    """Return a conversation whose turns of the assistant in the prompt have no loss."""
    chat = conversation_of({**rest, "prompt": prompt, "completion": answer}, "")
    count = len(answer) if isinstance(answer, list) else 1
    asked = len(chat.messages) - count
    earlier = {at for at in range(asked) if chat.messages[at]["role"] == "assistant"}
    if not any(turn["role"] == "assistant" for turn in chat.messages[asked:]):
        raise RefusedError("no answer", "an answer has no turn of the assistant")
    return replace(chat, untrained=tuple(sorted(earlier | {*chat.untrained})))
