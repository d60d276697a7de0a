"""Tools of a conversation and their calls, in the forms that data sets have."""

from __future__ import annotations

import json

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.child import RefusedError


def tools_of(record: JsonObject) -> list[Json] | None:
    """Return the tools of a record: `tools`, or the older `functions`; JSON text is read, one object is a list."""
    if record.get("tools") and record.get("functions"):
        raise RefusedError("tools twice", "it has tools and functions; remove one of them")
    for name in ("tools", "functions"):
        value = record.get(name)
        if isinstance(value, str) and value.strip():  # as some data sets keep them
            value = _json(value, name)
        if isinstance(value, dict):
            if value and not {"type", "function", "name"} & value.keys():
                reason = (
                    f"{name}: expected a list or one tool, got an object with {', '.join(sorted(value))[:80]}"
                )
                raise RefusedError("no conversation", reason)
            value = [value] if value else []
        if value is None or value in ("", []):
            continue
        if not isinstance(value, list):
            raise RefusedError("no conversation", f"{name}: expected a list, got {kind_of(value)}")
        return value if name == "tools" else [{"type": "function", "function": one} for one in value]
    return None


def parse_arguments(turn: JsonObject) -> int:
    """Read the arguments of tool calls that are JSON text, as templates expect objects; return their number."""
    calls, count = turn.get("tool_calls"), 0
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, dict) else None
        text = function.get("arguments") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(text, str):
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue  # a text that is no object stays
        if isinstance(value, dict):
            function["arguments"] = value
            count += 1
    return count


def _json(text: str, name: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(
            "no conversation", f"{name}: expected a list, got a text that is not JSON"
        ) from None
    return value


def with_calls(turn: JsonObject) -> JsonObject:
    """Return a turn with its calls in `tool_calls`: of JSON text, or of `function_call`, the older form of one call."""
    calls, older = turn.get("tool_calls"), turn.get("function_call")
    if isinstance(calls, str) and calls.strip():
        turn = {**turn, "tool_calls": _json(calls, "tool_calls")}
    if older is None:
        return turn
    if not isinstance(older, dict) or calls:
        reason = "function_call: expected one object and no tool_calls next to it"
        raise RefusedError("no conversation", reason)
    rest = {name: value for name, value in turn.items() if name != "function_call"}
    return {**rest, "tool_calls": [{"type": "function", "function": older}]}


def as_written(turns: list[JsonObject]) -> list[JsonObject]:
    """Return the turns with arguments of calls as text and null for no content; nothing if none has calls."""
    if not any(turn.get("tool_calls") for turn in turns):
        return []
    return [_turn_as_written(turn) if turn.get("tool_calls") else turn for turn in turns]


def _turn_as_written(turn: JsonObject) -> JsonObject:
    calls = turn["tool_calls"]
    written = [_call_as_written(call) for call in calls] if isinstance(calls, list) else calls
    return {**turn, "content": turn.get("content") or None, "tool_calls": written}


def _call_as_written(call: Json) -> Json:
    if not isinstance(call, dict):
        return call
    function = call.get("function", call)
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return (
            {**call, "function": {**function}}
            if isinstance(function, dict) and "function" in call
            else {**call}
        )
    said = {**function, "arguments": json.dumps(function.get("arguments"), ensure_ascii=False)}
    return {**call, "function": said} if "function" in call else said


def kind_of(value: Json) -> str:
    """Return the kind of a JSON value, as messages call it."""
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
