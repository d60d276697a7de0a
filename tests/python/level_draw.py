"""The random choices of a call of an op: drawn by hypothesis in one process, and replayed from a list in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
T = TypeVar("T")

# Sizes around every width of a vector and tile, the simplest first.
SIZES = (1, 7, 8, 15, 16, 17, 31, 33, 2, 3, 5, 32, 47, 48, 49, 63, 64, 65, 97, 128, 130)
FINITE = ("normal", "small", "wide", "zeros", "short", "denormal")
ALL_VALUES = (*FINITE, "special")
SEEDS = 1 << 16


class Draw:
    """Random choices by index, and arrays derived from them."""

    def __init__(self, index: Callable[[int], int]) -> None:
        """index: a function that returns an integer below its argument."""
        self._index = index
        self.picks: list[int] = []
        self._rng: np.random.Generator | None = None
        self._values: tuple[str, ...] = ()

    @classmethod
    def replay(cls, picks: Sequence[int]) -> Draw:
        """Return a draw that repeats the choices of an earlier one."""
        following: Iterator[int] = iter(picks)
        return cls(lambda count: next(following))

    def below(self, count: int) -> int:
        """Return an integer from 0 to count - 1."""
        self.picks.append(self._index(count))
        return self.picks[-1]

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options; put the simplest first."""
        return options[self.below(len(options))]

    def flag(self) -> bool:
        """Return False or True."""
        return bool(self.below(2))

    def size(self, most: int = 130) -> int:
        """Return a length up to `most`."""
        return self.pick([size for size in SIZES if size <= most])

    @property
    def rng(self) -> np.random.Generator:
        """Return the random generator of this case, created from one drawn seed."""
        if self._rng is None:
            self._rng = np.random.default_rng(self.below(SEEDS))
        return self._rng

    def array(self, *shape: int, scale: float = 1.0) -> F32:
        """Return an array of a randomly chosen kind: one scale, many scales, zeros, few bits, denormals, NaN, inf."""
        self._values = self._values or self.pick((FINITE, FINITE, ALL_VALUES))
        kind = self.pick(self._values)
        x = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        if kind == "small":
            return x * np.float32(1e-3)
        if kind == "wide":
            return np.ldexp(x, self.rng.integers(-40, 20, shape)).astype(np.float32)
        if kind == "zeros":
            return np.where(self.rng.random(shape) < 0.5, np.float32(-0.0), x)
        if kind == "short":  # few significant bits: sums are often halfway between two floats
            return np.where(self.rng.random(shape) < 0.2, np.round(x * 4) / 4, x).astype(np.float32)
        if kind == "denormal":
            return np.where(self.rng.random(shape) < 0.2, x * np.float32(1e-39), x).astype(np.float32)
        if kind == "special" and x.size:
            flat = x.reshape(-1)
            for _ in range(1 + flat.size // 500):
                value = self.rng.choice([np.nan, np.inf, -np.inf, 3e38, -3e38])
                flat[self.rng.integers(flat.size)] = value
        return x

    def maybe(self, *shape: int, scale: float = 1.0) -> F32 | None:
        """Return an array or None."""
        return self.array(*shape, scale=scale) if self.flag() else None

    def integers(self, high: int, *shape: int, low: int = 0) -> I32:
        """Return integers from `low` to high - 1."""
        return self.rng.integers(low, high, shape).astype(np.int32)
