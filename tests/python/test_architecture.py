"""Imports and includes point down, and the picture of them is the one in docs/architecture.md."""

from __future__ import annotations

import architecture
from architecture import Edge


def test_every_import_and_include_points_down() -> None:
    assert architecture.faults() == []


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert architecture.drawn() == architecture.picture(), "run python tests/architecture.py --write"


def test_an_edge_that_points_up_or_nowhere_is_a_fault() -> None:
    layers = ("train", "ops", "base")
    edges = [Edge("a.h", "train", "base"), Edge("b.h", "base", "ops"), Edge("c.h", "ops", "misc")]
    assert architecture.upward(edges, layers) == [
        "b.h: base uses ops, a layer above it",
        "c.h: misc is in no layer",
    ]
    beside = [Edge("d.py", "build", "report"), Edge("e.py", "build", "store")]
    assert architecture.upward(beside, ("build | report", "store")) == [
        "d.py: build uses report, a layer beside it"
    ]
    assert len(list(architecture.python_edges("mudd_core.run"))) > 60
    assert len(list(architecture.cpp_edges())) > 300 and len(list(architecture.python_edges())) > 150
