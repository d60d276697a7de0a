"""The schedule of a mixture: exact shares after every sample, found from the index of a sample alone."""

from __future__ import annotations

import numpy as np
import pytest

from mudd_core import _core

SAMPLES = 1_000_000
_BIG = 2**31 - 1  # the largest sum of weights


def _weightings() -> list[list[int]]:
    """Return 20 random lists of weights: of few and of 100 sources, with short and with long periods."""
    random = np.random.default_rng(50)
    found = [random.integers(1, 10, random.integers(2, 9)) for _ in range(6)]
    found += [random.integers(0, 1000, random.integers(3, 12)) for _ in range(6)]
    found += [random.integers(1, _BIG // 8, 7) for _ in range(5)]  # longer than the samples
    found += [np.array([1, 999_999, 500_000]), np.array([1] * 3 + [900_001])]
    found += [random.integers(1, 1000, 100)]
    return [weights.tolist() for weights in found]


@pytest.mark.parametrize("weights", _weightings(), ids=lambda weights: f"{len(weights)} of {sum(weights)}")
def test_every_count_differs_from_its_share_by_less_than_one(weights: list[int]) -> None:
    sources, indices = _core.MixSchedule([(0, weights)]).places(0, SAMPLES)
    period, n = sum(weights), np.arange(1, SAMPLES + 1, dtype=np.int64)
    for source, weight in enumerate(weights):
        of_it = sources == source
        counts = np.cumsum(of_it, dtype=np.int64)
        # |count - n w / W| < 1 in integers; both sides stay below 2^52
        assert np.abs(counts * period - n * weight).max() < period, source
        assert (indices[of_it] == np.arange(counts[-1])).all(), "the order of the source is its own"


def test_a_sample_does_not_depend_on_what_was_asked_before() -> None:
    for weights in ([7, 2, 1], [123_456, 654_321, 222_222], [_BIG // 2, 5, 77]):
        whole = _core.MixSchedule([(0, weights)]).places(0, 300_000)
        random, asked = np.random.default_rng(1), _core.MixSchedule([(0, weights)])
        for first in [299_990, *random.integers(0, 299_000, 20).tolist()]:
            found = asked.places(first, 10)
            assert all((a == b[first : first + 10]).all() for a, b in zip(found, whole, strict=True))
        assert asked.counts(200_001) == np.bincount(whole[0][:200_001], minlength=3).tolist()


def test_a_phase_counts_from_its_first_sample_and_continues_the_order_of_each_source() -> None:
    schedule = _core.MixSchedule([(0, [1, 1]), (101, [1, 3]), (201, [0, 1])])
    sources, indices = schedule.places(0, 400)
    assert np.bincount(sources[101:201]).tolist() == [25, 75]
    assert (sources[201:] == 1).all()
    for source in (0, 1):
        assert (indices[sources == source] == np.arange((sources == source).sum())).all()
    assert schedule.counts(400) == np.bincount(sources).tolist()


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ([(0, [0, 0])], "a sum of at least 1"),
        ([(0, [1, -1])], "integers from 0"),
        ([(0, [_BIG, 1])], "a sum of at most 2147483647"),
        ([(1, [1, 1])], "from sample 0"),
        ([(0, [1, 1]), (5, [1])], "2 weights in each"),
        ([(0, [1, 1]), (0, [1, 2])], "ascending samples"),
        ([], "from sample 0"),
    ],
)
def test_impossible_weights_are_refused(phases: list[tuple[int, list[int]]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _core.MixSchedule(phases)
