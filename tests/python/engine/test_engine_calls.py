"""The fake engine of the loop tests has the same methods as the real one, and those in the loop's protocol."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from fake_engine import FakeEngine
from mudd_core.engine.engine import Engine
from mudd_core.run.records.engine import LoopEngine


def listed_calls() -> Iterator[str]:
    """Yield the names of the protocol's methods."""
    for kind in LoopEngine.__mro__:
        if getattr(kind, "_is_protocol", False):
            yield from (
                name for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"
            )


def arguments(kind: type, name: str) -> list[tuple[str, object, object]]:
    """Return name, kind and default of each argument after self."""
    found = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize("kind", [Engine, FakeEngine])
def test_an_engine_takes_every_call_of_the_loop(kind: type) -> None:
    names = set(listed_calls())
    assert {"train_step", "evaluate", "last_batch", "load_state"} <= names
    for name in names:
        assert hasattr(kind, name), name
        assert arguments(kind, name) == arguments(LoopEngine, name), name
