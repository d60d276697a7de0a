"""The validation batches of a mixture, and the means over its sources with the weights of data.mix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mudd_core.base.types import Array

if TYPE_CHECKING:
    from mudd_core.data.pipelines.mixture.rows import MixedValidation

Sums = TypeVar("Sums")


class SourcedBatches:
    """The validation batches of a mixture, one source after the other.

    names: of the sources. weights: of data.mix, in the same order. bytes_per_target: of the validation text, 0 if
    unknown.
    """

    def __init__(self, rows: MixedValidation, of: Sequence[Iterable[Mapping[str, Array]]]) -> None:
        self.names, self.weights, self.bytes_per_target = rows.names, rows.weights, rows.bytes_per_target
        self._of = of
        self._sources: list[int] = []  # the source of each batch that was read

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        self._sources.clear()
        for source, batches in enumerate(self._of):
            for batch in batches:
                self._sources.append(source)
                yield batch

    def divided(self, sums: Sequence[Sums]) -> list[list[Sums]]:
        """Return the sums of the batches of each source. sums: of all batches that were read, in order."""
        parts: list[list[Sums]] = [[] for _ in self.names]
        for source, one in zip(self._sources, sums, strict=True):
            parts[source].append(one)
        return parts

    def mean(self, values: Sequence[float], counts: Sequence[int]) -> float:
        """Return the mean of the values of the sources; NaN without targets. counts: the targets of each source.

        A source without targets or without weight does not count.
        """
        used = [
            (weight, value)
            for weight, value, count in zip(self.weights, values, counts, strict=True)
            if count
        ]
        total = sum(weight for weight, _ in used)
        return sum(weight * value for weight, value in used if weight) / total if total else math.nan
