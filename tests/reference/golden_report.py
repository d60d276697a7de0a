"""Errors of the references against results of the original programs, printed next to their tolerances."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


failures: list[str] = []


def report(what: str, error: float, tolerance: float) -> None:
    """Print one line, and remember it if the error is over the tolerance."""
    bad = not error <= tolerance
    print(f"{'FAIL' if bad else 'ok  '} {what:<34} error {error:.2e}  tolerance {tolerance:.0e}")
    if bad:
        failures.append(what)


def worst_gradient(ours: dict[str, Array], golden: dict[str, Array]) -> float:
    """Return the largest difference over all tensors, each relative to the golden tensor's largest entry."""
    if ours.keys() != golden.keys():
        raise SystemExit(f"parameter names differ: {sorted(ours.keys() ^ golden.keys())}")
    return max(float(abs(ours[k] - g).max() / abs(g).max()) for k, g in golden.items())


def pick(z: Any, prefix: str) -> dict[str, Array]:
    """Return the arrays of an npz whose names start with a prefix, without the prefix."""
    return {k.removeprefix(prefix): z[k] for k in z.files if k.startswith(prefix)}


def relative(ours: Array, golden: Array) -> float:
    """Return the largest difference divided by the largest entry."""
    return float(abs(ours - golden).max() / abs(golden).max())
