"""The values inside a model by name, and immediate evaluation while patches replace some of them.

The planned graphs are not involved. Without a patch, values, losses and logits have the same bits as in those graphs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import numpy as np

from mudd_core import _core, nn
from mudd_core.base.types import Array
from mudd_core.config import ModelConfig, mixture_of
from mudd_core.engine.bare_model import BareModel
from mudd_core.engine.evaluation import piece_size, pieces
from mudd_core.engine.name_patterns import choose_names
from mudd_core.engine.planned import tree_sum
from mudd_core.graph import scopes
from mudd_core.graph.recording import Recorder, Value, recorded, running, taped
from mudd_core.graph.watching import Patch, Watcher
from mudd_core.models import Batch, Hidden, model_function

LOGITS = "logits"  # [B, T, V], computed by Hidden and not by the model function
_LISTED = "model.names() lists all"
# Two shapes of ids. An axis that grows with the first size is B; an axis that grows with the second is T.
_SHAPES = ((1, 1), (3, 2))
_LETTERS = {(1, 3): "B", (1, 2): "T"}


def value_names(config: ModelConfig) -> dict[str, str]:
    """Return the shape of each value by name, such as "[B, T, 64]", in the order of computation."""
    one, other = (_sown(config, shape) for shape in _SHAPES)
    return {name: _shape(one[name], other[name]) for name in one}


def _sown(config: ModelConfig, shape: tuple[int, int]) -> Mapping[str, Value]:
    store = _core.ParamStore()  # declares parameters without allocating memory
    recorder = Recorder(store, training=False, samples=shape[0], shards=1, capture=["*"])
    with running(recorder):
        hidden = model_function(config)(config, Batch(recorder.input("inputs", shape)), None)
        return recorder.sown | {LOGITS: recorded(hidden.logits())}


def _shape(one: Value, other: Value) -> str:
    axes = (_LETTERS.get(pair, str(pair[0])) for pair in zip(one.shape, other.shape, strict=True))
    dtype = one.recorder.graph.dtype(one.number)
    return ("int32 " if dtype == "int32" else "") + f"[{', '.join(axes)}]"


def chosen_values(patterns: list[str], names: list[str], place: str) -> list[str]:
    """Return the names that match the patterns; raise UserError with the nearest names for a pattern without a
    match.
    """
    return choose_names(patterns, names, place, what="the names of values", listed=_LISTED)


Patches = Mapping[str, Patch]


class Patching:
    """A context manager in which functions replace values in evaluation. Inner patches override outer ones."""

    def __init__(self, functions: Mapping[str, Patch], names: list[str], in_force: list[Patches]) -> None:
        """Check the patterns.

        functions: the functions by pattern. names: all values. in_force: active patches, innermost last.
        """
        if not isinstance(functions, Mapping):
            kind = type(functions).__name__
            raise TypeError(f"[patch] functions: expected a dict of names to functions, got {kind}")
        for pattern, function in functions.items():
            if not callable(function):
                kind = type(function).__name__
                raise TypeError(f"[patch] {pattern}: expected a function of an array, got {kind}")
        self._patches = {
            name: function
            for pattern, function in functions.items()
            for name in chosen_values([pattern], names, "[patch] name")
        }
        self._in_force = in_force

    def __enter__(self) -> None:
        self._in_force.append(self._patches)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_force[:] = [one for one in self._in_force if one is not self._patches]

    def __repr__(self) -> str:
        return f"Patching({', '.join(self._patches)})"


@contextmanager
def watched(
    model: BareModel,
    watcher: Watcher,
    arrays: Mapping[str, Array],
    shards: int = 1,
    config: ModelConfig | None = None,
) -> Iterator[Hidden]:
    """Yield the final states of a batch; ops inside the block run in the scope of the watcher."""
    config = config or model.config
    cuts = scopes.shards(len(arrays["inputs"]), shards)
    with running(watcher), cuts, scopes.precision(model.precision):
        yield model_function(config)(config, Batch.of(arrays), None)


def patched_logits(
    model: BareModel, patches: Patches, arrays: Mapping[str, Array], config: ModelConfig | None = None
) -> Array:
    """Return logits [B, T, V] under patches."""
    with watched(model, Watcher(model.store, patches=patches), arrays, config=config) as hidden:
        return taped(nn.sow(LOGITS, hidden.logits())).data


def patched_loss(
    model: BareModel, patches: Patches, arrays: Mapping[str, Array], shards: int
) -> tuple[float, float]:
    """Return (summed nats with auxiliary losses, counted targets) of a batch under patches."""
    with watched(model, Watcher(model.store, patches=patches), arrays, shards) as hidden:
        return loss_and_count(hidden, patches, arrays["targets"], shards)


def loss_and_count(hidden: Hidden, patches: Patches, targets: Array, shards: int = 1) -> tuple[float, float]:
    """Return (summed nats with auxiliary losses, counted targets) of final states."""
    nats, count, _ = _sums(hidden, patches, targets, shards)
    aux = tree_sum(taped(hidden.aux.loss(targets)).data) if hidden.aux else 0.0
    return tree_sum(nats) + aux, tree_sum(count)


def patched_evaluation(
    model: BareModel, patches: Patches, batch: Mapping[str, Array]
) -> tuple[float, int, int]:
    """Return summed nats, counted and guessed targets under patches, as Model.evaluate does."""
    size, shards = piece_size(model.config, len(batch["inputs"]), model.evaluated_at_once)
    loss, count, guessed = 0.0, 0, 0
    for piece in pieces(batch, size):
        with watched(model, Watcher(model.store, patches=patches), piece, shards) as hidden:
            nats, counted, hits = _sums(hidden, patches, piece["targets"], shards)
        for one, targets in zip(nats, counted, strict=True):
            loss += float(one)
            count += int(targets)
        guessed += int(hits[:, 0].sum(dtype=np.float64))
    return loss, count, guessed


def _sums(hidden: Hidden, patches: Patches, targets: Array, shards: int) -> tuple[Array, Array, Array]:
    """Return (nats and counted targets of each shard, guessed targets of each sample), as Hidden.loss does."""
    if LOGITS not in patches:
        nats, count, guessed = (taped(one).data for one in hidden.loss(targets))
        return nats, count, guessed
    logits = taped(nn.sow(LOGITS, hidden.logits())).data.astype(np.float64)
    counted = targets >= 0
    top = logits.max(-1)
    picked = np.take_along_axis(logits, np.maximum(targets, 0)[..., None], -1)[..., 0]
    each = (np.log(np.exp(logits - top[..., None]).sum(-1)) + top - picked) * counted
    hits = ((logits.argmax(-1) == targets) & counted).sum(-1, keepdims=True)
    return each.reshape(shards, -1).sum(1), counted.reshape(shards, -1).sum(1).astype(np.float64), hits


def patched_tokens(
    model: BareModel,
    patches: Patches,
    prompt: Array,
    count: int,
    sample: Callable[[Array, int], int],
    ring: int,
) -> Iterator[int]:
    """Yield up to `count` tokens after the prompt [T] under patches: each from the logits of all tokens, without a
    cache.

    sample: returns the next token from logits [V] and a position. ring: as for Generator; raise ValueError unless it is
    0. As with a cache, no expert drops a token.
    """
    if ring:
        raise ValueError("[generate] window: expected stop while a patch is active, got ring")
    return _tokens(model, patches, prompt, count, sample)


def _tokens(
    model: BareModel, patches: Patches, prompt: Array, count: int, sample: Callable[[Array, int], int]
) -> Iterator[int]:
    config = model.config
    if mixture_of(config) is not None:
        config = dataclasses.replace(config, capacity_factor=0.0)
    ids = np.asarray(prompt, np.int32)
    for made in range(count):
        with model.in_use:
            row = patched_logits(model, patches, {"inputs": ids[None]}, config)[0, -1]
            token = sample(row, ids.size)
        yield token
        if ids.size >= config.max_seq_len or made + 1 == count:
            return
        ids = np.append(ids, np.int32(token))
