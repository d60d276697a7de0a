"""config/values.py: one rule for numbers, booleans and strings, from arguments and from JSON, and one message
format.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json
from mudd_core.config import values

HUGE = 10**400


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("7", 7),
        ("-7", -7),
        ("1e3", 1000),
        ("1_000", 1000),
        ("3.0", 3),
        (3.0, 3),
        (str(HUGE), HUGE),
        (HUGE, HUGE),
    ],
)
def test_whole_numbers_have_several_spellings(given: Json, found: int) -> None:
    read = values.whole("[x] n", given)
    assert read == found and type(read) is int


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: values.whole("[x] n", "ten"), "[x] n: expected a whole number, got 'ten'"),
    (lambda: values.whole("[x] n", "1.5", 0), "[x] n: expected a whole number of at least 0, got '1.5'"),
    (lambda: values.whole("[x] n", 9, 0, 8), "[x] n: expected a whole number from 0 to 8, got 9"),
    (lambda: values.whole("[x] n", "9", high=8), "[x] n: expected a whole number of at most 8, got '9'"),
    (lambda: values.whole("", True), "expected a whole number, got True"),
    (lambda: values.whole("n", "3", strings=False), "n: expected a whole number, got '3'"),
    (
        lambda: values.whole("n", HUGE, 0, 9),
        "n: expected a whole number from 0 to 9, got a number of more than 256 bits",
    ),
    (lambda: values.whole("n", "inf"), "n: expected a whole number, got 'inf'"),
    (lambda: values.number("[x] r", "fast"), "[x] r: expected a number, got 'fast'"),
    (lambda: values.number("[x] r", "nan", 0), "[x] r: expected a number of at least 0, got 'nan'"),
    (
        lambda: values.number("[x] r", HUGE),
        "[x] r: expected a finite number, got a number of more than 256 bits",
    ),
    (lambda: values.number("[x] r", "0", above=0), "[x] r: expected a number above 0, got '0'"),
    (lambda: values.number("[x] r", 1, 0, below=1), "[x] r: expected a number from 0 to below 1, got 1"),
    (
        lambda: values.number("[x] r", "nan", 0, finite=False),
        "[x] r: expected a number of at least 0, got 'nan'",
    ),
    (lambda: values.number("r", 2, above=0, below=1), "r: expected a number above 0 and below 1, got 2"),
    (lambda: values.number("r", 1, below=1), "r: expected a number below 1, got 1"),
    (lambda: values.number("[x] r", [1]), "[x] r: expected a number, got [1]"),
    (lambda: values.flag("[x] f", "2"), "[x] f: expected true or false, got '2'"),
    (lambda: values.flag("[x] f", 2), "[x] f: expected true or false, got 2"),
    (lambda: values.flag("[x] f", "true", strings=False), "[x] f: expected true or false, got 'true'"),
    (lambda: values.text("[x] t", 5), "[x] t: expected a string, got 5"),
    (lambda: values.one_of("[x] c", "c", ("a", "b")), "[x] c: expected one of a, b, got 'c'"),
    (lambda: values.wholes("[x] w", "1,,2"), "[x] w: expected whole numbers separated by commas, got '1,,2'"),
    (lambda: values.whole("n", "x" * 60), f"n: expected a whole number, got '{'x' * 60}'"),
    (lambda: values.whole("n", "x" * 61), f"n: expected a whole number, got '{'x' * 60}...'"),
    (lambda: values.text("n", [1] * 20), f"n: expected a string, got {[1] * 20!r}"),
    (lambda: values.text("n", [1] * 21), f"n: expected a string, got {repr([1] * 21)[:60]}..."),
]


@pytest.mark.parametrize(("read", "says"), REFUSED)
def test_a_refusal_names_the_place_what_was_expected_and_what_came(
    read: Callable[[], object], says: str
) -> None:
    with pytest.raises(UserError) as caught:
        read()
    assert str(caught.value) == says


def test_bounds_are_inclusive() -> None:
    assert [values.whole("", count, 0, 8) for count in (0, 8)] == [0, 8]
    assert values.number("", 0, 0) == 0


def test_numbers_flags_and_lists() -> None:
    assert values.number("", "1e-5") == 1e-5 and values.number("", 3) == 3.0
    assert math.isnan(values.number("", "nan", finite=False))
    assert (
        values.number("", -HUGE, finite=False) == -math.inf
        and values.number("", HUGE, finite=False) == math.inf
    )
    assert all(values.flag("", given) for given in ("True", " on ", "yes", "1", 1, True))
    assert not any(values.flag("", given) for given in ("NO", "off", "false", "0", 0, False))
    assert values.wholes("", "64,1e2") == [64, 100]
    assert values.one_of("", "b", ("a", "b")) == values.text("", "b") == "b"


def test_numbers_that_yaml_takes_for_strings() -> None:
    assert values.spelled("1e-5") == 1e-5 and values.spelled(".5") == 0.5
    assert type(values.spelled("+5")) is float
    assert values.spelled("inf") == "inf" and values.spelled("1.0.2") == "1.0.2" and values.spelled("") == ""
    assert values.spelled(True) is True and values.spelled([1]) == [1]
