"""The names of the values inside a model, for Model.capture and Model.patch: what the model function sows."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core import _core
from mudd_core.config import ModelConfig
from mudd_core.engine.name_patterns import choose_names
from mudd_core.graph.recording import Recorder, Value, recorded, running
from mudd_core.models import Batch, model_function

LOGITS = "logits"  # [B, T, V]: of Hidden, no model function makes them
_LISTED = "model.names() lists all"
# Two shapes of ids. An axis that grows as the samples do is B, one that grows as the length does is T.
_SHAPES = ((1, 1), (3, 2))
_LETTERS = {(1, 3): "B", (1, 2): "T"}


def value_names(config: ModelConfig) -> dict[str, str]:
    """Name to shape of each value, such as "[B, T, 64]", in the order in which the model computes them."""
    one, other = (_sown(config, shape) for shape in _SHAPES)
    return {name: _shape(one[name], other[name]) for name in one}


def _sown(config: ModelConfig, shape: tuple[int, int]) -> Mapping[str, Value]:
    store = _core.ParamStore()  # declares parameters, takes no memory
    recorder = Recorder(store, training=False, samples=shape[0], shards=1, capture=["*"])
    with running(recorder):
        hidden = model_function(config)(config, Batch(recorder.input("inputs", shape)), None)
        return recorder.sown | {LOGITS: recorded(hidden.logits())}


def _shape(one: Value, other: Value) -> str:
    axes = (_LETTERS.get(pair, str(pair[0])) for pair in zip(one.shape, other.shape, strict=True))
    dtype = one.recorder.graph.dtype(one.number)
    return ("int32 " if dtype == "int32" else "") + f"[{', '.join(axes)}]"


def chosen_values(patterns: list[str], names: list[str], place: str) -> list[str]:
    """The names that the patterns choose; UserError with the nearest names for a pattern that chooses none."""
    return choose_names(patterns, names, place, what="the names of values", listed=_LISTED)
