"""The time that ranks wait for a sign of life from another rank."""

from __future__ import annotations

from typing import Any

import pytest

from mudd_core.run.ranks.hang_watch import LEAST, STEPS, Watch
from mudd_core.run.ranks.ranks import Ranks


class Listening:
    """A Comm that records the calls of watch and set_phase."""

    rank, world, node_size = 0, 2, 2

    def __init__(self) -> None:
        self.limits: list[float] = []
        self.phases: list[tuple[str, int]] = []

    def watch(self, seconds: float) -> None:
        self.limits.append(seconds)

    def set_phase(self, name: str, step: int) -> None:
        self.phases.append((name, step))


def watch_of(seconds: float = 0, expected: float = 0.1) -> tuple[Watch, Any]:
    comm: Any = Listening()
    return Watch(Ranks(comm), seconds, expected), comm


def test_five_minutes_or_twenty_steps() -> None:
    watch, comm = watch_of()
    watch.begin()
    assert comm.limits == [LEAST]
    for _ in range(9):
        watch.took_step(1.0)
    assert comm.limits == [LEAST]
    for _ in range(20):
        watch.took_step(60.0)
    assert watch.limit >= STEPS * 60 and comm.limits[-1] == watch.limit
    watch.end()
    assert comm.limits[-1] == 0
    assert watch_of(expected=100.0)[0].limit == 2000


def test_a_limit_that_was_asked_for_stays() -> None:
    watch, comm = watch_of(5)
    watch.begin()
    watch.took_step(1000.0)
    with watch.saving(3, 10**12):
        pass
    assert comm.limits == [5]


def test_a_large_save_takes_its_time() -> None:
    watch, comm = watch_of()
    watch.begin()
    with watch.saving(3, 10**11):
        assert comm.limits[-1] == pytest.approx(10**4) and comm.phases[-1] == ("save", 3)
    assert comm.limits[-1] == LEAST


def test_a_process_alone_is_not_watched() -> None:
    ranks = Ranks()
    watch = Watch(ranks, 5, 0.1)
    watch.begin()
    watch.phase("forward", 1)
    watch.took_step(1e9)
    with watch.saving(1, 10**12):
        pass
    watch.end()
