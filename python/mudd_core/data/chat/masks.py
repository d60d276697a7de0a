"""Turn the loss mask of a conversation's characters into a mask of its tokens, and show such a mask as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array, Int64
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.renderer import RenderedChat

_AROUND = 40  # characters that a message shows on each side
Decode = Callable[[Iterable[int]], str]


@dataclass(frozen=True)
class Example:
    """A tokenized conversation: ids [n], whether each has a loss [n], and the ids in the system turn, or -1."""

    ids: Int64
    counts: npt.NDArray[np.bool_]
    head: int


def example_of(chat: RenderedChat, ids: Int64, places: Int64, bos_id: int | None, eos_id: int) -> Example:
    """Return the tokens of a rendered conversation. places: [n, 2], the characters [first, end) of each id.

    Raise RefusedError if a token crosses the border of a mask, or if BOS or EOS occurs twice.
    """
    first, end = places[:, 0], places[:, 1]
    counts = np.zeros(ids.size, np.bool_)
    for a, b in chat.spans:
        inside = (end > a) & (first < b)
        cut = np.flatnonzero(inside & ((first < a) | (end > b)))
        if cut.size:
            at = a if first[cut[0]] < a else b
            sides = [chat.text[max(0, at - _AROUND) : at], chat.text[at : at + _AROUND]]
            raise RefusedError(
                "the start or end of a turn inside a token",
                "a turn starts or ends inside a token, so its loss mask is ambiguous",
                sides,
            )
        counts |= inside
    if bos_id is not None and ids.size > 1 and ids[0] == ids[1] == bos_id:
        raise RefusedError(
            "BOS twice", "its text starts with BOS twice: remove one from the template or the data"
        )
    if (twice := np.flatnonzero((ids[1:] == eos_id) & (ids[:-1] == eos_id))).size:
        reason = "EOS follows EOS: remove one from the template or the data"
        raise RefusedError("EOS twice", reason, [chat.text[: int(end[twice[0]])]])
    if not counts[1:].any():
        raise _none_counts(chat)
    head = chat.head if chat.head < 0 else int((end <= chat.head).sum())
    return Example(ids, counts, head)


def require_spans(chat: RenderedChat) -> None:
    """Raise RefusedError if no character of the text contributes to the loss."""
    if not any(first < end for first, end in chat.spans):
        raise _none_counts(chat)


def _none_counts(chat: RenderedChat) -> RefusedError:
    return RefusedError("no token that has a loss", "none of its tokens has a loss", [chat.text])


def marked(ids: Sequence[int], counts: Sequence[bool], decode: Decode) -> str:
    """Return the text of ids on one line, with {+ and +} around the tokens that have a loss."""
    parts = []
    for count, run in groupby(zip(ids, counts, strict=True), key=lambda one: one[1]):
        text = repr(decode([number for number, _ in run]))[1:-1]
        parts.append(f"{{+{text}+}}" if count else text)
    return "".join(parts)


def segment_lines(row: Mapping[str, Array], decode: Decode) -> Iterator[str]:
    """Yield a line for each segment of a sequence: its text, with {+ and +} around the targets that have a loss."""
    segments = row["segments"]
    for segment in range(1, int(segments.max()) + 1):
        here = segments == segment
        inputs, targets = row["inputs"][here].tolist(), row["targets"][here].tolist()
        after = [
            target if target >= 0 else number
            for number, target in zip([*inputs[1:], -1], targets, strict=True)
        ]
        ids, counts = [inputs[0], *after], [False, *(target >= 0 for target in targets)]
        if ids[-1] < 0:  # the last id of an example is a target only, never an input
            ids, counts = ids[:-1], counts[:-1]
        yield f"example {segment}  {marked(ids, counts, decode)}"
