"""The messages of a conversation that a model answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudd_core.base.arguments.utf8 import utf8_fault
from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.conversations import ROLES

SYSTEM = ("system", "developer")  # the roles of messages that stay when the oldest turns are left out


def system_message(text: str) -> list[JsonObject]:
    """Return the system message with this content; an empty list if the content is empty."""
    return [{"role": "system", "content": text}] if text else []


def checked_messages(messages: Sequence[Mapping[str, Json]]) -> list[JsonObject]:
    """Return the messages of a conversation. Raise UserError unless each has a role and a string as content, and the
    last one can be answered.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        kind = "no messages" if isinstance(messages, list) else f"a value of type {type(messages).__name__}"
        raise UserError(
            f'[chat] messages: expected a list like [{{"role": "user", "content": "Hello"}}], got {kind}'
        )
    found = [_checked(number, one) for number, one in enumerate(messages, 1)]
    if found[-1]["role"] not in ("user", "tool"):
        raise UserError(
            f"[chat] messages: expected the user's message at the end, got role '{found[-1]['role']}'; add a message "
            "to answer"
        )
    return found


def _checked(number: int, message: Mapping[str, Json]) -> JsonObject:
    place = f"[chat] messages: message {number}: expected"
    if not isinstance(message, Mapping):
        raise UserError(f"{place} a dict with the keys role and content, got {type(message).__name__}")
    if set(message) != {"role", "content"}:
        got = ", ".join(map(str, message)) or "none"
        raise UserError(f"{place} the keys role and content, got {got}")
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise UserError(f"{place} one of {', '.join(ROLES)} as role, got {role!r}")
    if not isinstance(content, str):
        raise UserError(f"{place} a string as content, got a value of type {type(content).__name__}")
    if fault := utf8_fault(content):
        raise UserError(f"{place} UTF-8 text, {fault}")
    return {"role": role, "content": content}
