"""The check of one op: hypothesis draws cases, all levels compute them, and the bits must be equal."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from level_draw import Draw
from level_results import results
from level_workers import Workers, differences


def check(
    workers: Workers, case: str, examples: int, progress: Callable[[int], None] = lambda count: None
) -> None:
    """Raise AssertionError with the smallest case in which two levels differ. progress: gets the count of cases."""
    done = 0

    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def equal(data: st.DataObject) -> None:
        nonlocal done
        draw = Draw(lambda count: data.draw(st.integers(0, count - 1)))
        results(case, draw)
        found = differences(workers.hashes(case, draw.picks))
        assert not found, f"{case} {draw.picks}: " + "; ".join(found)
        progress(done := done + 1)

    equal()
