"""The training sequences of a mixture: sample s is the next unread sequence of the source that the schedule names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array, Int32, Json
from mudd_core.data.documents.origins import Origin, origins_of
from mudd_core.data.pipelines.ids_data import FirstBatch
from mudd_core.data.pipelines.mixture.ends import Sized
from mudd_core.data.rows import Cursor, Cursored, Repeated, Rows
from mudd_core.data.streaming.rows import VERSION, StreamRows

KEY = "mix"  # the pipeline of a cursor


class MixedRows:
    """Sequences of several sources by global sample index; cpp/mudd/data/mix_schedule.h defines the order.

    names: of the sources. of: their sequences, in the same order. schedule: of the samples. end: the samples before the
    end of the mixture (data.mix_until), 0 if it has none. batch_size: sequences per update. bytes_per_target: of the
    training text of each source, 0 if unknown.
    """

    def __init__(
        self,
        names: Sequence[str],
        of: Sequence[Rows],
        schedule: _core.MixSchedule,
        end: int,
        batch_size: int,
        bytes_per_target: Sequence[float],
    ) -> None:
        self.names, self.of, self.schedule = tuple(names), tuple(of), schedule
        self.bytes_per_target = tuple(bytes_per_target)
        self.parts, self._end, self._batch_size = tuple(of[0].parts), end, batch_size
        self._passes = [passes_of(rows) for rows in of]
        self.core = self._joined()

    def _joined(self) -> _core.BatchSource | None:
        """Return the C++ source, or None if Python computes the sequences of a source."""
        cores = [rows.core for rows in self.of if rows.core is not None]
        whole = len(cores) == len(self.of)
        return _core.MixedRows(cores, self.schedule, rows=self.rows) if whole else None

    @property
    def rows(self) -> int:
        """The sequences before the end of the mixture; without an end, the ones of one pass over every source."""
        return self._end or sum(rows.rows for rows in self.of)

    def batches(self, epochs: int) -> int | None:
        """Return the number of whole batches before the end of the mixture; None if it has no end."""
        return self._end // self._batch_size if self._end else None

    def sources(self, first_sample: int, n_samples: int) -> Int32:
        """Return the index in `names` of the source of each sample, int32 [n_samples]."""
        found: Int32 = self.schedule.places(first_sample, n_samples)[0]
        return found

    def counts(self, samples: int) -> list[int]:
        """Return the sequences of each source among the first `samples` sequences."""
        return self.schedule.counts(samples)

    def epochs(self, samples: int) -> list[float]:
        """Return the passes over each source in the first `samples` sequences; NaN for a stream, of unknown size."""
        return [
            count * passes / rows.rows if rows.rows else np.nan
            for count, passes, rows in zip(self.counts(samples), self._passes, self.of, strict=True)
        ]

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Array]:
        """Return the arrays of the sequences by name; each source is asked once for its consecutive sequences."""
        sources, indices = self.schedule.places(first_sample, n_samples)
        found: dict[str, Array] = {}
        for source in np.unique(sources).tolist():
            at = np.flatnonzero(sources == source)
            arrays = self.of[source].arrays(int(indices[at[0]]), len(at))
            for name, array in arrays.items():
                if name not in found:
                    found[name] = np.empty((n_samples, *array.shape[1:]), array.dtype)
                found[name][at] = array
        return found

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does. Their numbers are the ones in their source."""
        places = [self.schedule.places(sample, 1) for sample in samples]
        sources = [int(source[0]) for source, _ in places]
        found: list[list[Origin]] = [[] for _ in samples]
        for source in sorted(set(sources)):
            at = [n for n, one in enumerate(sources) if one == source]
            inside = origins_of(self.of[source], [int(places[n][1][0]) for n in at], files=files)
            for n, origins in zip(at, inside, strict=True):
                found[n] = origins
        return found

    def cursor(self, batch: int) -> Cursor | None:
        """Return the positions of the sources that have one; None if the sample index is enough for all of them."""
        before = self.counts(batch * self._batch_size)
        places: dict[str, Cursor] = {}
        for name, rows, count in zip(self.names, self.of, before, strict=True):
            place = rows.cursor(count // self._batch_size) if isinstance(rows, Cursored) else None
            if place is not None:
                places[name] = place
        return {"version": VERSION, "pipeline": KEY, "batch": batch, "sources": places} if places else None

    def go_on(self, cursor: Json) -> None:
        """Continue from a checkpoint's position; an unusable position is ignored."""
        places = cursor.get("sources") if isinstance(cursor, Mapping) else None
        if not isinstance(places, Mapping):
            return
        for name, rows in zip(self.names, self.of, strict=True):
            if name in places and isinstance(rows, Cursored):
                rows.go_on(places[name])

    def close(self) -> None:
        """Stop the processes of streams."""
        for rows in self.of:
            if isinstance(rows, StreamRows):
                rows.close()


def passes_of(rows: Sized) -> int:
    """Return the passes over the data that are in the `rows` sequences of a source: one, except for prepared maps."""
    return rows.passes if isinstance(rows, Repeated) else 1


def sources_of(rows: Rows | None, first_sample: int, n_samples: int) -> Int32 | None:
    """Return the index in data.mix of the source of each sample, int32 [n_samples]; None for other data."""
    if isinstance(rows, FirstBatch):
        return sources_of(rows.of, first_sample % rows.size, n_samples)
    return rows.sources(first_sample, n_samples) if isinstance(rows, MixedRows) else None


class MixedValidation:
    """The validation sequences of all sources, one source after the other; `of` has the ones of each source.

    weights: of data.mix. bytes_per_target: of the validation text of each source, 0 if unknown.
    """

    core = None

    def __init__(
        self,
        names: Sequence[str],
        of: Sequence[Rows],
        weights: Sequence[int],
        bytes_per_target: Sequence[float],
    ) -> None:
        self.names, self.of, self.parts = tuple(names), tuple(of), tuple(of[0].parts)
        self.weights, self.bytes_per_target = tuple(weights), tuple(bytes_per_target)
        self._ends = np.cumsum([rows.rows for rows in of]).tolist()

    @property
    def rows(self) -> int:
        """The number of sequences of all sources."""
        return int(self._ends[-1])

    def batches(self, epochs: int) -> int | None:
        """Return None: a validation has no epochs."""
        return None

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Array]:
        """Return the arrays of the sequences by name; samples after the end have only ignored targets."""
        found: list[Mapping[str, Array]] = []
        at, end = first_sample, first_sample + n_samples
        for rows, last in zip(self.of, self._ends, strict=True):
            is_last = last == self._ends[-1]
            taken = (end if is_last else min(end, last)) - at
            if taken > 0 and (at < last or is_last):
                found.append(rows.arrays(at - (last - rows.rows), taken))
                at += taken
        return {name: np.concatenate([arrays[name] for arrays in found]) for name in found[0]}
