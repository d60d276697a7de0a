"""Every tolerance of a test is in a table or has a reason next to it."""

from __future__ import annotations

import tolerance_reasons


def test_every_tolerance_has_a_reason() -> None:
    assert tolerance_reasons.unexplained() == []


def test_a_tolerance_without_a_reason_is_found() -> None:
    text = (
        "assert a == approx(b, rel=1e-5)\n\n"
        "assert a < 1e-5 * b  # rounding\n"
        "close(a, b, atol=2e-5 * c, rtol=0)\n\n"
        "assert a < 1e-5\n"
        "# rounding\n"
        "assert abs(a - b) <= 1e-5 and a < 0.5\n"
        "for x in y:\n    close(x, 0, rtol=1e-6)\n"
        "close(a, b, rtol=STORED)\n"
    )
    assert tolerance_reasons.lines_without_reason(text) == [1, 6, 10]
