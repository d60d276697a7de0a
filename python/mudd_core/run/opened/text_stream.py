"""The generated text of a run, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.base.show.printable import visible_line

_SHOWN = 60  # characters of the text in a repr


class TextStream(Iterator[str]):
    """An iterator over the pieces of a generated text; `text` has the pieces so far.

    `for piece in run.generate("The", stream=True): print(piece, end="")`. The model computes a token when a piece is
    requested.
    """

    def __init__(self, prompt: str, pieces: Iterator[str]) -> None:
        self._prompt, self._pieces = prompt, pieces
        self.text = ""

    def __next__(self) -> str:
        piece = next(self._pieces)
        self.text += piece
        return piece

    def __repr__(self) -> str:
        end = "..." if len(self.text) > _SHOWN else ""
        done = f"{visible_line(repr(self.text[:_SHOWN]))}{end}" if self.text else "nothing yet"
        return f"TextStream(after {visible_line(repr(self._prompt[:_SHOWN]))}: {done}; iterate over it, or read .text)"
