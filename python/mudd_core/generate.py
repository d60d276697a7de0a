"""Writing tokens one by one over a KV cache (prefill in pieces, then single steps)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.config.families import head_width, kv_heads
from mudd_core.models import Batch, Cache, model_function
from mudd_core.recording import Recorder, running

_PIECES = (64, 8, 1)  # a prompt is cut into these lengths: exact, nothing padded


class Generator:
    """The decoding graphs of a model, one per piece length, over one cache."""

    def __init__(self, config: Any, store: Any) -> None:
        self.config = config
        self.store = store
        shape = (1, kv_heads(config), config.max_seq_len, head_width(config))
        self._cache = {
            f"{which}_cache.{layer}": np.zeros(shape, np.float32)
            for which in "kv"
            for layer in range(config.n_layer)
        }
        self._plans: dict[int, tuple[Any, int]] = {}

    def _plan(self, length: int) -> tuple[Any, int]:
        if length not in self._plans:
            recorder = Recorder(self.store, training=False, samples=1, shards=1)
            inputs = recorder.input("inputs", (1, length))
            values = {
                name: recorder.input(name, array.shape, "float32", external=True)
                for name, array in self._cache.items()
            }
            layers = range(self.config.n_layer)
            cache = Cache([values[f"k_cache.{i}"] for i in layers], [values[f"v_cache.{i}"] for i in layers])
            with running(recorder):
                logits = model_function(self.config)(self.config, Batch(inputs), cache).logits()
            executor = _core.Executor(recorder.graph, self.store, losses=[], keep=[logits.number])
            for name, array in self._cache.items():
                executor.attach(name, array)
            self._plans[length] = (executor, logits.number)
        return self._plans[length]

    def feed(self, ids: npt.NDArray[np.int32], cached: int) -> npt.NDArray[np.float32]:
        """Logits [T, V] of ids [T] behind `cached` earlier ones."""
        rows = []
        while ids.size:
            length = next(piece for piece in _PIECES if piece <= ids.size)
            executor, number = self._plan(length)
            executor.set("inputs", np.ascontiguousarray(ids[None, :length]))
            executor.run(cache_length=cached)
            rows.append(np.array(executor.get(number)[0]))
            ids, cached = ids[length:], cached + length
        return np.concatenate(rows)

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
        """Yields up to max_tokens tokens; ends early when the model's window is full."""
        if temperature < 0 or top_k < 0 or not 0 < top_p <= 1:
            raise ValueError("[generate] expected temperature >= 0, top_k >= 0 and top_p in (0, 1]")
        return self._tokens(prompt, max_tokens, temperature, top_k, top_p, seed, ids_below or None)

    def _tokens(
        self,
        prompt: npt.NDArray[np.int32],
        max_tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        seed: int,
        ids_below: int | None,
    ) -> Iterator[int]:
        row = self.feed(prompt, 0)[-1]
        cached = prompt.size
        for count in range(max_tokens):
            token = int(
                _core.sample(
                    row[:ids_below],
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed,
                    position=cached,
                )
            )
            yield token
            if cached >= self.config.max_seq_len or count + 1 == max_tokens:
                return
            row = self.feed(np.array([token], np.int32), cached)[0]
            cached += 1
