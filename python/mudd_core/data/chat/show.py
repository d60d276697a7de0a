"""Tokens as text in which those that count stand out: {+as here+}."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from mudd_core.base.types import Array

Decode = Callable[[Iterable[int]], str]


def marked(ids: Sequence[int], counts: Sequence[bool], decode: Decode) -> str:
    """The text of ids, on one line; {+ and +} are around the tokens that count."""
    parts = []
    for count, run in groupby(zip(ids, counts, strict=True), key=lambda one: one[1]):
        text = repr(decode([number for number, _ in run]))[1:-1]
        parts.append(f"{{+{text}+}}" if count else text)
    return "".join(parts)


def segment_lines(row: Mapping[str, Array], decode: Decode) -> Iterator[str]:
    """A line for each segment of a row: its text, with the targets that count marked."""
    segments = row["segments"]
    for segment in range(1, int(segments.max()) + 1):
        here = segments == segment
        inputs, targets = row["inputs"][here].tolist(), row["targets"][here].tolist()
        after = [
            target if target >= 0 else number
            for number, target in zip([*inputs[1:], -1], targets, strict=True)
        ]
        ids, counts = [inputs[0], *after], [False, *(target >= 0 for target in targets)]
        if ids[-1] < 0:  # the last id of an example is no input
            ids, counts = ids[:-1], counts[:-1]
        yield f"example {segment}  {marked(ids, counts, decode)}"
