"""Sequences of brackets that are still open, and the bracket that closes the innermost one."""

from __future__ import annotations

import random

from datasets import Dataset

_TEST, _TRAIN = 300, 32
_OPEN, _CLOSED = "([{", ")]}"
_DEEPEST = 5


def _document(draw: random.Random) -> dict[str, str | int | list[str]]:
    text, waiting = "", list[int]()
    for _ in range(draw.randrange(6, 31)):
        opens = not waiting or (len(waiting) < _DEEPEST and draw.randrange(2) == 0)
        if opens:
            waiting.append(draw.randrange(len(_OPEN)))
            text += _OPEN[waiting[-1]]
        else:
            text += _CLOSED[waiting.pop()]
    if not waiting:
        waiting.append(draw.randrange(len(_OPEN)))
        text += _OPEN[waiting[-1]]
    # With spaces no tokenizer joins the choice with the text.
    return {"text": " ".join(text), "choices": [f" {bracket}" for bracket in _CLOSED], "answer": waiting[-1]}


def _documents(count: int, seed: int) -> Dataset:
    draw = random.Random(seed)
    return Dataset.from_list([_document(draw) for _ in range(count)])


def open_brackets(**_: str | float) -> dict[str, Dataset]:
    """Return the sequences by split: text, the choices, and the number of the right one."""
    return {"test": _documents(_TEST, 1), "train": _documents(_TRAIN, 2)}
