"""Stop texts of a sample: streamed text ends before the first of them, however tokens divide it."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Passes streamed text on up to the stop text that is complete first; that text itself is left out.

    Held back is only an end of the text with which a stop text may begin.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def take(self, piece: str) -> str:
        """Return the text to write after one more piece."""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)[1]]
        kept = len(text) - self._beginning(text)
        self._held = text[kept:]
        return text[:kept]

    def rest(self) -> str:
        """Return the text that was held back, at the end of the sample."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop text without being all of it."""
        lengths = (n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
        return max(lengths, default=0)
