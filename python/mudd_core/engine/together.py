"""Generation of several sequences at a time, which reads the weights once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Float32
from mudd_core.config.families import family_of
from mudd_core.engine.generate import Caches, Generator, new_caches
from mudd_core.engine.model import Model
from mudd_core.engine.prefix_cache import AT_ONCE, Sample
from mudd_core.engine.scoring.shared import common, depends_on_others, together

_ROUNDED = 64  # positions of caches are rounded up to a multiple
_WINDOW = 8  # groups of sequences that are sorted by length


@dataclass(frozen=True)
class Asked:
    """A prompt and how it continues. take: called with each token; returns False for the last one."""

    prompt: list[int]
    sample: Sample
    max_tokens: int
    take: Callable[[int], bool]


class _Sequence:
    """A sequence with its prompt in the cache. number: of its prompt. length: of its ids in the cache."""

    def __init__(self, number: int, asked: Asked) -> None:
        self.number, self._asked = number, asked
        self.length, self._left = len(asked.prompt), asked.max_tokens
        self.token, self.ended = 0, not asked.max_tokens

    def draw(self, logits: Float32) -> None:
        """Sample the next token from logits [V]."""
        self.token = self._asked.sample(logits, self.length)
        self._left -= 1
        self.ended = not self._asked.take(self.token) or not self._left


class Together:
    """Generates the tokens of several prompts, each with the bits of a generation alone.

    A graph run continues sequences of one length. So the shortest sequence of a group takes steps until it is as long
    as the next one; from then on both share their steps. The ids that a prompt has in common with a cached one are
    copied. most: sequences of a graph run; 0: as many as run fastest.
    """

    def __init__(self, model: Model, most: int) -> None:
        self._model, self._most = model, most
        self._caches: Caches = {}
        self._held: list[Sequence[int]] = []  # the ids of each cache that a prompt may reuse
        self._state: tuple[Generator | None, int] = (None, 0)  # of the weights that computed the caches
        self.steps = 0  # graph runs after the prompts so far

    @staticmethod
    def can_run(model: Model) -> bool:
        """Return whether several sequences of a model can share a graph run with unchanged bits."""
        config = model.config
        return family_of(config).decodes and not depends_on_others(config) and not model.inside.is_patched

    def run(self, asked: Sequence[Asked], ended: Callable[[int], None]) -> None:
        """Generate the tokens of each prompt. ended: called with the number of each one that has ended.

        Prompts [T] have at least one id, and T + max_tokens is at most max_seq_len.
        """
        with self._model.in_use:
            for rows in self._groups(asked):
                self._generate(rows, asked, ended)

    def _groups(self, asked: Sequence[Asked]) -> Iterator[list[_Sequence]]:
        """Yield the sequences of one group after the other, the shortest first."""
        if not asked:
            return
        longest = max(len(one.prompt) + one.max_tokens for one in asked)
        most = self._allocate(min(self._model.config.max_seq_len, -(-longest // _ROUNDED) * _ROUNDED))
        # In sorted order prompts follow those with which they share the most.
        order = sorted(range(len(asked)), key=lambda at: asked[at].prompt)
        for start in range(0, len(order), most * _WINDOW):
            window = sorted(order[start : start + most * _WINDOW], key=lambda at: len(asked[at].prompt))
            for first in range(0, len(window), most):
                yield [_Sequence(at, asked[at]) for at in window[first : first + most]]

    def _allocate(self, positions: int) -> int:
        """Make caches of at least `positions` ids; return how many sequences they have."""
        known = next(iter(self._caches.values()), None)
        if known is None or known.shape[2] < positions:
            fitting = together(self._model.config, positions)
            count = min(self._most or fitting, fitting)
            self._caches = new_caches(self._model.config, count, positions)
            self._held = [()] * count
        return len(self._held)

    def _generate(self, rows: list[_Sequence], asked: Sequence[Asked], ended: Callable[[int], None]) -> None:
        """Generate the tokens of a group, whose sequences have a cache each."""
        state = (self._model.generator(), self._model.store.changes)
        if state != self._state:
            self._state, self._held = state, [()] * len(self._held)
        for row in sorted(range(len(rows)), key=lambda row: asked[rows[row].number].prompt):
            logits = self._fed(row, asked[rows[row].number].prompt)
            if not rows[row].ended:
                rows[row].draw(logits)
        some = [one for one in rows if one.ended]
        while True:
            for one in some:
                ended(one.number)
            if not (rows := self._moved(rows)):
                return
            some = self._step(rows)

    def _fed(self, row: int, prompt: Sequence[int]) -> Float32:
        """Write the keys and values of a prompt [T] to a cache; return the last logits [V]."""
        shared, source = max((common(ids, prompt[:-1]), at) for at, ids in enumerate(self._held))
        self._held[row] = ()
        if source != row:
            for array in self._caches.values():
                array[row, :, :shared] = array[source, :, :shared]
        generator, cache = self._model.generator(), self._rows(row, row + 1)
        for first in range(shared, len(prompt), AT_ONCE):
            some = np.array(prompt[first : first + AT_ONCE], np.int32)
            logits: Float32 = generator.feed(some, first, cache)[-1]
        self._held[row] = prompt
        return logits

    def _step(self, rows: Sequence[_Sequence]) -> list[_Sequence]:
        """Continue the shortest sequences by a token; return those that end with it."""
        live = [at for at, one in enumerate(rows) if not one.ended]
        length = rows[live[0]].length
        count = 1 + max(at for at in live if rows[at].length == length)
        ids = np.array([one.token for one in rows[:count]], np.int32)
        logits = self._model.generator().step(ids, length, self._rows(0, count))
        self.steps += 1
        # The others among them have ended: their logits are not read.
        some = [at for at in live if at < count]
        for at in some:
            rows[at].length += 1
            rows[at].draw(logits[at])
        return [rows[at] for at in some if rows[at].ended]

    def _moved(self, rows: list[_Sequence]) -> list[_Sequence]:
        """Return the sequences. Once at least half of them have ended, return the others, in the first caches."""
        live = [at for at, one in enumerate(rows) if not one.ended]
        if 2 * len(live) > len(rows):
            return rows
        for row, at in enumerate(live):
            if row != at:
                for array in self._caches.values():
                    array[row, :, : rows[at].length] = array[at, :, : rows[at].length]
                self._held[row] = self._held[at]
        return [rows[at] for at in live]

    def _rows(self, first: int, end: int) -> Caches:
        return {name: array[first:end] for name, array in self._caches.items()}
