"""Conversations out of the records of files: `messages`, `prompt` and `completion`, or Alpaca's three members."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.child import RefusedError
from mudd_core.data.formats.format import Format

ROLES = ("system", "developer", "user", "assistant", "tool")
_PAIR = ("prompt", "completion")
_ALPACA = ("instruction", "input", "output")


@dataclass(frozen=True)
class Conversation:
    """The turns of a conversation, and the tools that its template may describe."""

    messages: list[JsonObject]
    tools: list[Json] | None

    def digest(self) -> bytes:
        """SHA-256 of what it says; RefusedError for half a surrogate, which no text has."""
        text = json.dumps([self.messages, self.tools], ensure_ascii=False, sort_keys=True)
        try:
            return hashlib.sha256(text.encode()).digest()
        except UnicodeEncodeError:
            raise RefusedError("not a text", "a text holds half a surrogate") from None


def messages_column(column: str) -> str:
    """The member that holds the messages, for data.column, whose default is that of plain texts."""
    return "messages" if column == "text" else column


def records(file: Path, one: Format, column: str) -> Iterator[JsonObject]:
    """The members of each record of a file that a conversation is made of. column: of the messages.

    UserError for a format whose records are no objects.
    """
    if one.objects is None:
        raise UserError(
            f"[data.path] data.pipeline=chat reads jsonl, Parquet and Arrow, got {file} ({one.name}); write one JSON "
            "object a line"
        )
    wanted = {column, "tools", *_PAIR, *_ALPACA}
    for record in one.objects(file):
        yield {name: value for name, value in record.items() if name in wanted}


def conversation_of(record: JsonObject, column: str) -> Conversation:
    """The conversation of a record; RefusedError where it is none, UserError where it has no such members at all."""
    tools = record.get("tools")
    if isinstance(tools, str):  # as some data sets keep them
        tools = _json(tools)
    if column in record:
        turns = _turns(record[column], column)
    elif all(name in record for name in _PAIR):
        prompt, completion = (record[name] for name in _PAIR)
        turns = [*_turns(prompt, "prompt", "user"), *_turns(completion, "completion", "assistant")]
    elif "instruction" in record and "output" in record:
        turns = _alpaca(record)
    else:
        raise UserError(
            f"[data.column] expected records with {column}, with prompt and completion, or with instruction, input and "
            f"output, got {', '.join(sorted(record)) or 'none of these'}; data.column names the member that holds the "
            "messages"
        )
    _require_turns(turns)
    return Conversation(turns, tools if isinstance(tools, list) and tools else None)


def _json(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(
            "not a conversation", "tools: expected a list, got a text that is not JSON"
        ) from None
    return value


def _turns(value: Json, name: str, role: str = "") -> list[JsonObject]:
    """The messages in a member, without members that are null. role: of a text in place of messages."""
    if isinstance(value, str) and role:
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        wanted = "a list of messages" if not role else "a text or a list of messages"
        raise RefusedError("not a conversation", f"{name}: expected {wanted}, got {_kind(value)}")
    return [{k: v for k, v in turn.items() if v is not None} for turn in value if isinstance(turn, dict)]


def _alpaca(record: JsonObject) -> list[JsonObject]:
    """The instruction, with the input behind an empty line where there is one, and the output."""
    asked, more, output = (record.get(name) or "" for name in _ALPACA)
    if not isinstance(asked, str) or not isinstance(more, str) or not isinstance(output, str):
        raise RefusedError("not a conversation", f"expected texts in {', '.join(_ALPACA)}")
    question = f"{asked}\n\n{more}" if more else asked
    return [{"role": "user", "content": question}, {"role": "assistant", "content": output}]


def _require_turns(turns: list[JsonObject]) -> None:
    for number, turn in enumerate(turns, 1):
        role, content = turn.get("role"), turn.get("content", "")
        if role not in ROLES:
            raise RefusedError(
                "an unknown role",
                f"turn {number}: expected one of {', '.join(ROLES)} as role, got {role!r:.80}",
            )
        if not isinstance(content, str | list):
            raise RefusedError(
                "not a conversation", f"turn {number}: expected a text as content, got {_kind(content)}"
            )
        calls = turn.get("tool_calls")
        if (
            role == "assistant"
            and not calls
            and not (content.strip() if isinstance(content, str) else content)
        ):
            raise RefusedError("an empty answer", f"turn {number}: the answer is empty")
    if all(turn["role"] != "assistant" for turn in turns):
        raise RefusedError("no answer", "it has no turn of the assistant")


def _kind(value: Json) -> str:
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
