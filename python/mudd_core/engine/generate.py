"""Generation of tokens with a KV cache: prefill in pieces, then single steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array
from mudd_core.config.families import ModelConfig, family_of, head_width, kv_heads
from mudd_core.config.fields import LONGEST
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, Cache, model_function

Caches = dict[str, Array]  # name of a graph input -> array [B, heads, positions, width]

_IDS = "ids_cache"  # name of the graph input with the ids so far
_PIECES = (64, 8, 1)  # a prompt is split into pieces of these lengths, without padding


def new_caches(config: ModelConfig, sequences: int, positions: int) -> Caches:
    """Return the memory of the keys and values of `sequences` sequences of at most `positions` ids, and of the ids."""
    shape = (sequences, kv_heads(config), positions, head_width(config))
    names = (f"{which}_cache.{layer}" for which in "kv" for layer in range(config.n_layer))
    caches = {name: np.zeros(shape, np.float32) for name in names}
    if config.ngram_rows:
        caches[_IDS] = np.zeros((sequences, 1, positions, 1), np.float32)
    return caches


def cache_inputs(
    config: ModelConfig, recorder: Recorder, caches: Caches, samples: int, *, ring: bool
) -> Cache:
    """Return the caches of `samples` sequences as inputs of a graph."""
    values = {
        name: recorder.input(name, (samples, *array.shape[1:]), "float32", external=True)
        for name, array in caches.items()
    }
    layers = range(config.n_layer)
    keys, rows = ([values[f"{which}_cache.{i}"] for i in layers] for which in "kv")
    return Cache(keys, rows, ids=values.get(_IDS), ring=ring)


def ring_positions(config: ModelConfig, needed: int, window: str) -> int:
    """Return the positions of a Generator for `needed` tokens, rounded up so that calls share it; 0 if no ring is
    needed.

    Raise ValueError if the model's positions end earlier.
    """
    if window not in ("stop", "ring"):
        raise ValueError(f"[generate] window: expected stop or ring, got {window!r}")
    if window == "stop" or needed <= config.max_seq_len:
        return 0
    if config.positions_end:
        raise ValueError(
            f"[generate] window=ring: needs rotary positions; the positions of this {config.family} end at "
            f"{config.max_seq_len}"
        )
    if needed > LONGEST:
        raise ValueError(f"[generate] window=ring: expected at most {LONGEST} tokens in all, got {needed}")
    return min(LONGEST, 1 << (needed - 1).bit_length())


def check_sampling(*, max_tokens: int, temperature: float, top_k: int, top_p: float, seed: int) -> None:
    """Raise ValueError or TypeError for an invalid sampling argument."""
    # The core uses 64-bit integers; only the seed is unsigned.
    for name, count, bits in (("max_tokens", max_tokens, 63), ("top_k", top_k, 63), ("seed", seed, 64)):
        if not isinstance(count, Integral):
            raise TypeError(f"[generate] {name}: expected a whole number, got {count!r}")
        if count < 0:
            raise ValueError(f"[generate] {name}: expected at least 0, got {count}")
        if count >= 1 << bits:
            raise ValueError(f"[generate] {name}: expected less than 2**{bits}, got {count}")
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if not isinstance(value, Real):
            raise TypeError(f"[generate] {name}: expected a number, got {value!r}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"[generate] temperature: expected at least 0 (0: greedy), got {temperature}")
    if not 0 < top_p <= 1:
        raise ValueError(f"[generate] top_p: expected more than 0 and at most 1, got {top_p}")


def sampler(
    *, temperature: float, top_k: int, top_p: float, seed: int, ids_below: int = 0
) -> Callable[[npt.NDArray[np.float32], int], int]:
    """Return a function that samples the next token from logits [V] at a position."""

    def sample(row: npt.NDArray[np.float32], position: int) -> int:
        return int(
            _core.sample(
                row[: ids_below or None],
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                position=position,
            )
        )

    return sample


class Generator:
    """The decoding graphs of a model, one for each piece length; every run has a separate cache.

    in_use: the lock of the model. The next run reuses the cache of a finished one. positions: 0, or the most tokens of
    a run whose cache is a ring of max_seq_len tokens. reuses: True if a cache may be fed further by another run.
    """

    reuses = True

    def __init__(
        self, config: ModelConfig, store: _core.ParamStore, in_use: InUse, positions: int = 0
    ) -> None:
        self.config = config
        self.positions = positions
        self.store = store
        self.in_use = in_use
        self._spare: Caches | None = None
        # By sequences, ids of a piece, and positions of the caches.
        self._plans: dict[tuple[int, int, int], tuple[_core.Executor, int]] = {}
        self._attached: dict[tuple[int, int, int], Caches] = {}

    @alone
    def take_caches(self) -> Caches:
        """Return caches for one run. Reuse the caches of a finished run if there are any."""
        spare, self._spare = self._spare, None
        return new_caches(self.config, 1, self.config.max_seq_len) if spare is None else spare

    def give_back(self, caches: Caches) -> None:
        """Keep the caches of a finished run for the next one."""
        self._spare = caches

    def _plan(self, shape: tuple[int, int], caches: Caches) -> tuple[_core.Executor, int]:
        key = (*shape, next(iter(caches.values())).shape[2])
        if key not in self._plans:
            recorder = Recorder(self.store, training=False, samples=shape[0], shards=1)
            inputs = recorder.input("inputs", shape)
            cache = cache_inputs(self.config, recorder, caches, shape[0], ring=self.positions > 0)
            batch = Batch(inputs, known_positions=self.positions)
            with running(recorder):
                logits = model_function(self.config)(self.config, batch, cache).logits()
            number = recorded(logits).number
            executor = _core.Executor(recorder.graph, self.store, losses=[], keep=[number])
            self._plans[key] = (executor, number)
        executor, number = self._plans[key]
        if self._attached.get(key) is not caches:
            for name, array in caches.items():
                executor.attach(name, array)
            self._attached[key] = caches
        return executor, number

    @alone
    def feed(self, ids: npt.NDArray[np.int32], cached: int, caches: Caches) -> npt.NDArray[np.float32]:
        """Return logits [T, V] of ids [T] after `cached` earlier ones, whose keys and values are in the caches."""
        rows = []
        while ids.size:
            length = next(piece for piece in _PIECES if piece <= ids.size)
            executor, number = self._plan((1, length), caches)
            executor.set("inputs", np.ascontiguousarray(ids[None, :length]))
            executor.run(cache_length=cached)
            rows.append(np.array(executor.get(number)[0]))
            ids, cached = ids[length:], cached + length
        return np.concatenate(rows)

    @alone
    def step(self, ids: npt.NDArray[np.int32], cached: int, caches: Caches) -> npt.NDArray[np.float32]:
        """Return logits [B, V] of one id [B] for each of B sequences after `cached` earlier ones in caches [B, ...]."""
        executor, number = self._plan((ids.size, 1), caches)
        executor.set("inputs", np.ascontiguousarray(ids[:, None]))
        executor.run(cache_length=cached)
        return np.array(executor.get(number)[:, 0])

    def run(
        self,
        prompt: npt.NDArray[np.int32],
        *,
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        seed: int,
        ids_below: int = 0,
    ) -> Iterator[int]:
        """Yield up to max_tokens tokens, or fewer if the positions end.

        Check the arguments with check_sampling() first.
        """
        sample = sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, ids_below=ids_below)
        return self._tokens(prompt, max_tokens, sample)

    def _tokens(
        self,
        prompt: npt.NDArray[np.int32],
        max_tokens: int,
        sample: Callable[[npt.NDArray[np.float32], int], int],
    ) -> Iterator[int]:
        caches = self.take_caches()
        try:
            row = self.feed(prompt, 0, caches)[-1]
            cached = prompt.size
            for count in range(max_tokens):
                token = sample(row, cached)
                yield token
                if cached >= max(self.positions, self.config.max_seq_len) or count + 1 == max_tokens:
                    return
                row = self.feed(np.array([token], np.int32), cached, caches)[0]
                cached += 1
        finally:
            self.give_back(caches)


class FullPasses(Generator):
    """Generates tokens without a KV cache: each token needs a pass over all tokens so far."""

    reuses = False

    @alone
    def take_caches(self) -> Caches:
        """Return the buffer of one run's ids [1, max_seq_len]."""
        return {"ids": np.zeros((1, self.config.max_seq_len), np.int32)}

    @alone
    def feed(self, ids: npt.NDArray[np.int32], cached: int, caches: Caches) -> npt.NDArray[np.float32]:
        """Return logits [T, V] of ids [T] after `cached` earlier ones; a causal model ignores the zeros after them."""
        end = cached + ids.size
        caches["ids"][0, cached:end] = ids
        length = min(self.config.max_seq_len, 1 << (end - 1).bit_length())
        executor, number = self._full_plan(length)
        executor.set("inputs", np.ascontiguousarray(caches["ids"][:, :length]))
        executor.run()
        return np.array(executor.get(number)[0, cached:end])

    def _full_plan(self, length: int) -> tuple[_core.Executor, int]:
        key = (1, length, 0)
        if key not in self._plans:
            recorder = Recorder(self.store, training=False, samples=1, shards=1)
            batch = Batch(recorder.input("inputs", (1, length)))
            with running(recorder):
                number = recorded(model_function(self.config)(self.config, batch, None).logits()).number
            self._plans[key] = (_core.Executor(recorder.graph, self.store, losses=[], keep=[number]), number)
        return self._plans[key]


def make_generator(config: ModelConfig, store: _core.ParamStore, in_use: InUse, positions: int) -> Generator:
    """Return the generator of a model. Raise ValueError for a ring in a model without a KV cache."""
    if family_of(config).decodes:
        return Generator(config, store, in_use, positions)
    if positions:
        raise ValueError(f"[generate] window=ring: needs a KV cache, and {config.family} decodes without one")
    return FullPasses(config, store, in_use)
