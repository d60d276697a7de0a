"""Members by which data sets exclude answers from the loss: weight, train, trainable, loss, masked and the like."""

from __future__ import annotations

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat.child import RefusedError

# Each is 0 or 1, or false or true. An answer is trained if the first ones are 1 and the others 0.
_TRAINED = ("weight", "train", "trainable", "training", "loss", "loss_weight", "loss_scale")
_NUMBERS = ("weight", "loss_weight", "loss_scale")
_EXCLUDED = ("masked",)
_OF_TURNS = (*_TRAINED, *_EXCLUDED)
# Programs read these in different ways.
_UNCLEAR = ("mask", "loss_mask", "train_detail")
_OF_RECORDS = ("weight", "train", "trainable", "masked", "loss_weight", "loss_scale")
_KIND = "a weight that is none"


def untrained_turns(turns: list[JsonObject]) -> tuple[int, ...]:
    """Return the places of answers that the data exclude from the loss; RefusedError for a mark that cannot be read."""
    return tuple(place for place, turn in enumerate(turns) if _is_untrained(turn, place + 1))


def without_marks(turn: JsonObject) -> JsonObject:
    """Return a turn without its marks, which are no part of its text."""
    return {name: value for name, value in turn.items() if name not in _OF_TURNS}


def require_trained(record: JsonObject) -> None:
    """RefusedError for a record that is excluded or weighted as a whole."""
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
