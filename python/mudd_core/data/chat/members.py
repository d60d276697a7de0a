"""Read the keys of a record other than the text of its turns: tools, tool calls, and marks that exclude answers.

Data sets exclude an answer by weight, train, trainable, loss, masked and similar keys.
"""

from __future__ import annotations

import json

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.counted import RefusedError

# Each value is 0 or 1, or false or true. An answer is trained if its _TRAINED keys are 1 and its _EXCLUDED keys 0.
_TRAINED = ("weight", "train", "trainable", "training", "loss", "loss_weight", "loss_scale")
_NUMBERS = ("weight", "loss_weight", "loss_scale")
_EXCLUDED = ("masked",)
_OF_TURNS = (*_TRAINED, *_EXCLUDED)
# Programs interpret these marks in different ways.
_UNCLEAR = ("mask", "loss_mask", "train_detail")
_OF_RECORDS = ("weight", "train", "trainable", "masked", "loss_weight", "loss_scale")
_KIND = "an invalid weight"


def untrained_turns(turns: list[JsonObject]) -> tuple[int, ...]:
    """Return the indices of the answers excluded from the loss; raise RefusedError for an unreadable mark."""
    return tuple(place for place, turn in enumerate(turns) if _is_untrained(turn, place + 1))


def without_marks(turn: JsonObject) -> JsonObject:
    """Return a turn without its marks, which are not part of its text."""
    return {name: value for name, value in turn.items() if name not in _OF_TURNS}


def require_trained(record: JsonObject) -> None:
    """Raise RefusedError for a record whose marks or weight apply to all of it."""
    for name in _OF_RECORDS:
        value = record.get(name)
        if value is None or (value == 1 if name in _TRAINED else value == 0):
            continue
        text = f"{name}: expected none next to the turns, or {_wanted(name)}, got {value!r:.80}"
        raise RefusedError(
            "a weight of a whole record", f"{text}; write it into the turns or remove the record"
        )


def _is_untrained(turn: JsonObject, number: int) -> bool:
    for name in _UNCLEAR:
        if turn.get(name) is not None:
            text = f"turn {number}: expected weight, train or masked, got {name}"
            raise RefusedError(_KIND, f"{text}, which programs read in different ways; rename it")
    marks = {name: turn[name] for name in _OF_TURNS if turn.get(name) is not None}
    for name, value in marks.items():
        if not _is_mark(value):
            raise RefusedError(_KIND, f"turn {number}: expected {_either(name)} as {name}, got {value!r:.80}")
    excluded = any(bool(value) == (name in _EXCLUDED) for name, value in marks.items())
    return turn.get("role") == "assistant" and excluded


def _is_mark(value: Json) -> bool:
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def _either(name: str) -> str:
    return "0 or 1" if name in _NUMBERS else "true or false"


def _wanted(name: str) -> str:
    value = name in _TRAINED
    return f"{int(value)}" if name in _NUMBERS else f"{value}".lower()


def tools_of(record: JsonObject) -> list[Json] | None:
    """Return the tools of a record: `tools`, or the older `functions`.

    JSON text is parsed; a single object becomes a list.
    """
    if record.get("tools") and record.get("functions"):
        raise RefusedError("tools twice", "it has tools and functions; remove one of them")
    for name in ("tools", "functions"):
        value = record.get(name)
        if isinstance(value, str) and value.strip():  # some data sets store tools this way
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
    """Parse the arguments of tool calls that are JSON text, because templates expect objects; return the count."""
    calls, count = turn.get("tool_calls"), 0
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, dict) else None
        text = function.get("arguments") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(text, str):
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue  # a string that is not a JSON object stays
        if isinstance(value, dict):
            function["arguments"] = value
            count += 1
    return count


def _json(text: str, name: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(
            "no conversation", f"{name}: expected a list, got a string that is not JSON"
        ) from None
    return value


def with_calls(turn: JsonObject) -> JsonObject:
    """Return a turn with its calls in `tool_calls`: parsed JSON text, or the call of the older `function_call`."""
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
    """Return the turns with arguments as strings and null for missing content; an empty list if no turn has calls."""
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
    """Return the name of a JSON value's type for messages."""
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
