"""Every op has the same fp32 bits at all instruction set levels of this CPU (more cases: ./run soak levels)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from level_check import check
from level_results import CASES
from level_workers import Workers, levels
from mudd_core import _core

EXAMPLES = 30
LEVELS = levels()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    if len(LEVELS) < 2:
        pytest.skip(f"this CPU has {len(LEVELS)} of the levels that are compared")
    with Workers(LEVELS) as started:
        yield started


def test_every_op_has_cases() -> None:
    assert {spec.name for spec in _core.op_specs()} <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_levels_have_the_same_bits(workers: Workers, case: str) -> None:
    check(workers, case, EXAMPLES)
