"""Read conversations from the records of files: `messages`, `prompt` and `completion`, or Alpaca's three keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.filled_nulls import FilledNulls
from mudd_core.data.chat.members import (
    as_written,
    kind_of,
    parse_arguments,
    require_trained,
    tools_of,
    untrained_turns,
    with_calls,
    without_marks,
)
from mudd_core.data.formats.format import FAIL, BadRecords, Format

ROLES = ("system", "developer", "user", "assistant", "tool")
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}
_PAIR = ("prompt", "completion")
_THOUGHTS = ("reasoning_content", "thinking", "reasoning")
_SYSTEM = ("system", "system_prompt")
_VARIABLES = "chat_template_kwargs"
_OWN_VARIABLES = {"messages", "tools", "documents", "add_generation_prompt", "chat_template", "tokenize"}
_ALPACA = ("instruction", "input", "output")


_SHAREGPT = "as ShareGPT's; docs/data.md (chat data) has the lines that rename them"


class NoLayoutError(RefusedError):
    """A record that has the keys of no known layout."""

    def __init__(self, record: JsonObject, column: str) -> None:
        super().__init__(
            "no known keys",
            f"expected records with {column}, with prompt and completion, or with instruction, input and output, got "
            f"{', '.join(sorted(record)) or 'none'}; {_way_out(record)}",
        )


@dataclass(frozen=True)
class Conversation:
    """The turns of a conversation, and the tools that its template may describe.

    untrained: indices of the answers that the data exclude from the loss. parsed: the number of tool calls whose
    arguments were JSON text. variables: further variables of the template, such as enable_thinking. written: the turns
    as some templates (DeepSeek's) need them, with arguments as strings and null for missing content; empty if they do
    not differ.
    """

    messages: list[JsonObject]
    tools: list[Json] | None
    untrained: tuple[int, ...] = ()
    parsed: int = 0
    variables: JsonObject = field(default_factory=dict)
    written: list[JsonObject] = field(default_factory=list)

    def digest(self) -> bytes:
        """Return SHA-256 of the content; raise RefusedError for an unpaired surrogate, which is not valid text."""
        more = [[*self.untrained]] if self.untrained else []
        text = json.dumps(
            [self.messages, self.tools, *more, *([self.variables] if self.variables else [])],
            ensure_ascii=False,
            sort_keys=True,
        )
        try:
            return hashlib.sha256(text.encode()).digest()
        except UnicodeEncodeError:
            raise RefusedError("an unpaired surrogate", "a string has an unpaired surrogate") from None


def messages_column(column: str) -> str:
    """Return the key that contains the messages. The default of data.column is for plain text, so it is replaced."""
    return "messages" if column == "text" else column


def require_records(file: Path, one: Format) -> None:
    """Raise UserError for a format whose records are no objects."""
    if one.objects is None:
        raise UserError(
            f"[data.path] data.pipeline=chat reads jsonl, Parquet and Arrow, got {file} "
            f"({one.name}); write one JSON object per line"
        )


def records(file: Path, one: Format, bad: BadRecords = FAIL, *, filled: bool = True) -> Iterator[JsonObject]:
    """Yield the records of a file. Raise UserError for a format whose records are no objects.

    filled: remove the nulls that a table filled in; a jsonl file is then read twice.
    """
    require_records(file, one)
    assert one.objects is not None
    found = one.objects(file, bad)
    yield from map(FilledNulls(file, one).removed, found) if filled else found


def conversation_of(record: JsonObject, column: str) -> Conversation:
    """Return the conversation of a record.

    Raise RefusedError if it is not a conversation, and NoLayoutError if it has no known keys.
    """
    if column in record:
        turns = _turns(record[column], column)
    elif all(name in record for name in _PAIR):
        prompt, completion = (record[name] for name in _PAIR)
        turns = [*_turns(prompt, "prompt", "user"), *_turns(completion, "completion", "assistant")]
    elif "instruction" in record and "output" in record:
        turns = _alpaca(record)
    else:
        raise NoLayoutError(record, column)
    turns = [*_system_of(record, turns), *turns]
    head = int(bool(turns) and turns[0].get("role") == "system")
    turns = [*turns[:head], *_history_of(record), *turns[head:]]
    require_trained(record)
    untrained = untrained_turns(turns)
    turns = [with_calls(without_marks(turn)) for turn in turns]
    written = as_written(turns)
    parsed = sum(map(parse_arguments, turns))
    _require_turns(turns)
    if len(untrained) == sum(turn["role"] == "assistant" for turn in turns):
        raise RefusedError(
            "no answer", "each turn of the assistant is excluded by weight 0, train false or the like"
        )
    return Conversation(turns, tools_of(record), untrained, parsed, _variables_of(record), written)


def _variables_of(record: JsonObject) -> JsonObject:
    """Return the template's variables from `chat_template_kwargs`, a key that trl reads too."""
    found = record.get(_VARIABLES)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RefusedError("no conversation", f"{_VARIABLES}: expected an object, got {kind_of(found)}")
    if own := sorted(_OWN_VARIABLES & found.keys()):
        reason = f"{_VARIABLES}: expected variables of the template, got {', '.join(own)}; remove them"
        raise RefusedError("no conversation", reason)
    return found


def _system_of(record: JsonObject, turns: list[JsonObject]) -> list[JsonObject]:
    """Return the system turn that a record stores in a separate key, if any."""
    named = [name for name in _SYSTEM if record.get(name)]
    if not named:
        return []
    system = record[named[0]]
    if not isinstance(system, str):
        raise RefusedError("no conversation", f"{named[0]}: expected a string, got {kind_of(system)}")
    if len(named) > 1 or (turns and turns[0].get("role") == "system"):
        other = f"a key {named[1]}" if len(named) > 1 else "a system turn"
        raise RefusedError("two system turns", f"it has {other} and a key {named[0]}; remove one of them")
    return [{"role": "system", "content": system}]


def _history_of(record: JsonObject) -> list[JsonObject]:
    """Return the earlier turns in `history`, which are pairs of a question and an answer."""
    history = record.get("history")
    if history is None or history == []:
        return []
    pairs = history if isinstance(history, list) else [history]
    turns: list[JsonObject] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise RefusedError("no conversation", "history: expected pairs of a question and an answer")
        turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return turns


def _way_out(record: JsonObject) -> str:
    """Return a remedy for a record of another layout; it names a key that contains turns, if there is one."""
    if {"chosen", "rejected"} <= record.keys():
        return "a pair of answers needs loss.kind=dpo or orpo (tune --loss=dpo)"
    for name, value in record.items():
        if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
            if all("role" in turn for turn in value if isinstance(turn, dict)):
                return f"data.column={name} reads the messages of {name}"
            if all("from" in turn for turn in value if isinstance(turn, dict)):
                return f"its {name} have from and value, {_SHAREGPT}"
    return "rename them, or set data.column to the key of the messages"


def _turns(value: Json, name: str, role: str = "") -> list[JsonObject]:
    """Return the messages under a key, without their null values. role: the role of a plain string."""
    if isinstance(value, str) and role:
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        wanted = "a list of messages" if not role else "a string or a list of messages"
        raise RefusedError("no conversation", f"{name}: expected {wanted}, got {kind_of(value)}")
    return [
        _with_thoughts({k: v for k, v in turn.items() if v is not None})
        for turn in value
        if isinstance(turn, dict)
    ]


def _with_thoughts(turn: JsonObject) -> JsonObject:
    """Return the turn with its reasoning under the keys that templates read, as transformers 5 does."""
    found = next((turn[name] for name in _THOUGHTS if name in turn), None)
    return turn if found is None else {"thinking": found, **turn, "reasoning_content": found}


def _alpaca(record: JsonObject) -> list[JsonObject]:
    """Return the turns: the instruction, an empty line and the input if there is one, and the output."""
    asked, more, output = (record.get(name) or "" for name in _ALPACA)
    if not isinstance(asked, str) or not isinstance(more, str) or not isinstance(output, str):
        raise RefusedError("no conversation", f"expected strings in {', '.join(_ALPACA)}")
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
    """Return the text of a turn's content, a string or a list of parts; raise RefusedError for any other part."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RefusedError(
            "no conversation", f"{place}: expected a string as content, got {kind_of(content)}"
        )
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    said = [text for text in texts if isinstance(text, str)]
    if len(said) != len(content):
        reason = (
            f'{place}: expected parts {{"type": "text", "text": ...}}, got another; the models read text only'
        )
        raise RefusedError("a part that is not text", reason)
    return "".join(said)
