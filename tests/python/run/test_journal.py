"""The journal of a run passes each event to the listeners for its type, in the order of the listeners."""

from __future__ import annotations

from mudd_core.run.records.journal import Journal, Listener


class Named(Listener):
    def __init__(self, name: str, heard: list[str]) -> None:
        self._name, self._heard = name, heard

    def said(self, text: str) -> None:
        self._heard.append(f"{self._name}: {text}")


def test_listeners_hear_an_event_in_their_order() -> None:
    heard: list[str] = []
    journal = Journal(Named("a", heard))
    journal.add(Named("b", heard), Named("c", heard))
    journal.add(Named("first", heard), first=True)
    journal.said("x")
    journal.closed()
    assert heard == ["first: x", "a: x", "b: x", "c: x"]
