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
from mudd_core.data.formats.bad_records import FAIL, BadRecords
from mudd_core.data.formats.format import Format

ROLES = ("system", "developer", "user", "assistant", "tool")
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}
_PAIR = ("prompt", "completion")
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")
_ALPACA = ("instruction", "input", "output")


_SHAREGPT = "as ShareGPT's; docs/data.md (chat data) has the lines that rename them"


class NoLayoutError(RefusedError):
    """A record with the members of none of the layouts."""

    def __init__(self, record: JsonObject, column: str) -> None:
        super().__init__(
            "no known members",
            f"expected records with {column}, with prompt and completion, or with instruction, input and output, got "
            f"{', '.join(sorted(record)) or 'none'}; {_way_out(record)}",
        )


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
            raise RefusedError("half a surrogate", "a text holds half a surrogate") from None


def messages_column(column: str) -> str:
    """The member that holds the messages, for data.column, whose default is that of plain texts."""
    return "messages" if column == "text" else column


def records(file: Path, one: Format, bad: BadRecords = FAIL) -> Iterator[JsonObject]:
    """Yield the records of a file.

    UserError for a format whose records are no objects.
    """
    if one.objects is None:
        raise UserError(
            f"[data.path] data.pipeline=chat reads jsonl, Parquet and Arrow, got {file} ({one.name}); write one JSON "
            "object a line"
        )
    yield from one.objects(file, bad)


def conversation_of(record: JsonObject, column: str) -> Conversation:
    """The conversation of a record; RefusedError where it is none, NoLayoutError without any known members."""
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
        raise NoLayoutError(record, column)
    _require_turns(turns)
    return Conversation(turns, tools if isinstance(tools, list) and tools else None)


def _way_out(record: JsonObject) -> str:
    """What to do with a record of another layout: by a member that holds turns, where there is one."""
    for name, value in record.items():
        if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
            if all("role" in turn for turn in value if isinstance(turn, dict)):
                return f"data.column={name} reads the messages of {name}"
            if all("from" in turn for turn in value if isinstance(turn, dict)):
                return f"its {name} have from and value, {_SHAREGPT}"
    return "rename them, or name the member that holds the messages by data.column"


def _json(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError("no conversation", "tools: expected a list, got a text that is not JSON") from None
    return value


def _turns(value: Json, name: str, role: str = "") -> list[JsonObject]:
    """The messages in a member, without members that are null. role: of a text in place of messages."""
    if isinstance(value, str) and role:
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        wanted = "a list of messages" if not role else "a text or a list of messages"
        raise RefusedError("no conversation", f"{name}: expected {wanted}, got {_kind(value)}")
    return [
        _with_thoughts({k: v for k, v in turn.items() if v is not None})
        for turn in value
        if isinstance(turn, dict)
    ]


def _with_thoughts(turn: JsonObject) -> JsonObject:
    """The turn with its thoughts under the names that templates read, as transformers 5 gives them."""
    found = next((turn[name] for name in _THOUGHTS if name in turn), None)
    return turn if found is None else {"thinking": found, **turn, "reasoning_content": found}


def _alpaca(record: JsonObject) -> list[JsonObject]:
    """The instruction, with the input behind an empty line where there is one, and the output."""
    asked, more, output = (record.get(name) or "" for name in _ALPACA)
    if not isinstance(asked, str) or not isinstance(more, str) or not isinstance(output, str):
        raise RefusedError("no conversation", f"expected texts in {', '.join(_ALPACA)}")
    question = f"{asked}\n\n{more}" if more else asked
    return [{"role": "user", "content": question}, {"role": "assistant", "content": output}]


def _require_turns(turns: list[JsonObject]) -> None:
    for number, turn in enumerate(turns, 1):
        role = turn.get("role")
        if role not in ROLES:
            raise RefusedError(
                "an unknown role",
                f"turn {number}: expected one of {', '.join(ROLES)} as role, got {role!r:.80}{_role_hint(turn)}",
            )
        said = _said(turn.get("content", ""), f"turn {number}")
        if role == "assistant" and not turn.get("tool_calls") and not said.strip():
            raise RefusedError("an empty answer", f"turn {number}: the answer is empty")
    if all(turn["role"] != "assistant" for turn in turns):
        raise RefusedError("no answer", "it has no turn of the assistant")


def _role_hint(turn: JsonObject) -> str:
    if "from" in turn:
        return f"; it has from and value, {_SHAREGPT}"
    other = _OTHER_ROLES.get(str(turn.get("role")))
    return f"; write {other}" if other else ""


def _said(content: Json, place: str) -> str:
    """The text of a turn's content: a text, or a list of parts. RefusedError for a part that is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RefusedError("no conversation", f"{place}: expected a text as content, got {_kind(content)}")
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    said = [text for text in texts if isinstance(text, str)]
    if len(said) != len(content):
        reason = f'{place}: expected parts {{"type": "text", "text": ...}}, got another; models here read text alone'
        raise RefusedError("a part that is no text", reason)
    return "".join(said)


def _kind(value: Json) -> str:
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
