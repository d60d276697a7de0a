"""Generation that reuses the KV cache of the previous prompt for the ids that both prompts start with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mudd_core.engine.generate import Caches, Generator
from mudd_core.engine.model import Model
from mudd_core.engine.scoring.shared import common

AT_ONCE = 256  # ids of a prompt between two checks for a stop; a multiple of the longest piece of a Generator

Sample = Callable[[npt.NDArray[np.float32], int], int]


@dataclass(frozen=True)
class _Kept:
    """The keys and values of `ids`, computed by a generator while the weights had been written `changes` times."""

    generator: Generator
    changes: int
    ids: list[int]
    caches: Caches


class PrefixCache:
    """The KV cache of the last prompt and its answer, for a model that continues growing prompts.

    The ids at the start of a new prompt that equal the cached ones are not computed again. Each token has the bits of a
    generation without this cache. A write to the weights empties it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kept: _Kept | None = None
        self.reused = 0  # ids of the last prompt that were not computed again

    def tokens(
        self,
        prompt: Sequence[int],
        sample: Sample,
        max_tokens: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[int]:
        """Yield up to max_tokens tokens after a prompt [T], where T + max_tokens is at most max_seq_len.

        sample: returns a token for logits [V] and their position. stopped: checked every few ids of the prompt.
        """
        model = self._model
        if model.inside.is_patched:
            yield from model.inside.tokens(np.array(prompt, np.int32), max_tokens, sample, 0)
            return
        generator = model.generator()
        taken = self._taken(generator)
        fed, caches = taken.ids, taken.caches
        self.reused = common(fed, prompt[:-1])
        del fed[self.reused :]
        try:
            row = None
            while len(fed) < len(prompt):
                if stopped():
                    return
                some = prompt[len(fed) : len(fed) + AT_ONCE]
                row = generator.feed(np.array(some, np.int32), len(fed), caches)[-1]
                fed.extend(some)
            assert row is not None
            for count in range(max_tokens):
                token = sample(row, len(fed))
                yield token
                if count + 1 == max_tokens:
                    return
                row = generator.feed(np.array([token], np.int32), len(fed), caches)[0]
                fed.append(token)
        finally:
            self._keep(taken)

    def _taken(self, generator: Generator) -> _Kept:
        """Return the kept cache if it is of this generator and these weights, else an empty one.

        The kept cache is removed: an answer that starts before another one ends has a separate cache.
        """
        kept, self._kept = self._kept, None
        changes = self._model.store.changes
        if kept is not None and kept.generator is generator and kept.changes == changes:
            return kept
        if kept is not None:
            kept.generator.give_back(kept.caches)
        return _Kept(generator, changes, [], generator.take_caches())

    def _keep(self, taken: _Kept) -> None:
        if self._kept is None and taken.generator.reuses:
            self._kept = taken
        else:
            taken.generator.give_back(taken.caches)
