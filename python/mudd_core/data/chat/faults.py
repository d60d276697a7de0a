"""Examples that are not trained on: how many of each kind, and the first of each in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from mudd_core.base.errors import UserError
from mudd_core.data.chat.child import CHANGES, CHANGES_EARLIER, REFUSES, RefusedError

_LONGEST = 240  # characters of a text in a message
_BEFORE = 60  # of them in front of the first difference


@dataclass
class Faults:
    """The refused examples of a data set. counts: by kind. first: of each kind, its number and the words about it."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, example: str, error: RefusedError) -> None:
        """Count one. example: its number and file."""
        self.counts[error.kind] = self.counts.get(error.kind, 0) + 1
        self.first.setdefault(
            error.kind, "\n".join([f"{example}: {error.reason}", *shown_texts(error.texts)])
        )

    def text(self) -> str:
        """How many of each kind; empty without any."""
        return ", ".join(f"{count:,} with {kind}" for kind, count in self.counts.items())

    def require_none(self, total: int) -> None:
        """UserError with the first of each kind and the way out. total: examples in all."""
        if not self.counts:
            return
        refused = sum(self.counts.values())
        raise UserError(
            f"[data.path] {refused:,} of {total:,} examples cannot be trained on: {self.text()}\n"
            + "\n".join(self.first.values())
            + "\nmend them, or set data.bad_examples=drop to train without them"
            + self._hint()
        )

    def _hint(self) -> str:
        """What else may be done about some kinds."""
        hints = []
        if {CHANGES, CHANGES_EARLIER} & self.counts.keys():
            ways = "a template with {% generation %} marks (data.template=FILE)"
            if CHANGES not in self.counts:
                ways += ", or data.loss_on=last,"
            hints.append(f"{ways} needs no text that stays")
        if REFUSES in self.counts:
            hints.append("data.template=chatml or FILE takes another template")
        return "".join(f"; {hint}" for hint in hints)


def shown_texts(texts: list[str]) -> list[str]:
    """Lines that show texts: two from a little before their first difference, one from its beginning."""
    if len(texts) < 2:
        return [f"  text    {_cut(one, 0)}" for one in texts]
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    return [
        f"  {name:<7} {_cut(one, max(0, same - _BEFORE))}"
        for name, one in zip(("first", "second"), texts, strict=True)
    ]


def _cut(text: str, first: int) -> str:
    end = first + _LONGEST
    return f"{'...' if first else ''}{text[first:end]!r}{'...' if end < len(text) else ''}"
