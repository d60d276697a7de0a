"""How data of a run are prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mudd_core.data.sources.corpus import Progress


@dataclass(frozen=True)
class Preparation:
    """What a start says about its data.

    fingerprint: of the data that a run was started with. progress: called with (phase, done, total); None is the
    terminal. before_build: called before text is read for a new cache; it may raise.
    """

    fingerprint: str | None = None
    progress: Progress | None = None
    before_build: Callable[[], None] | None = None
