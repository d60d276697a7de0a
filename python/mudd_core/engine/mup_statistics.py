"""Activations of a muP transformer on a fixed batch, and their statistics, which mu-Transformer logs.

docs/maths/mup.md has the statistics (4.1) and their names in the log (4.4). The graph is the family's model function,
recorded over the trained weights; it stores the values that the model sows. The attention kernel never stores scores
and probabilities. Unit vectors as values make it return them column by column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.config import Config, MupConfig
from mudd_core.graph import scopes
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, model_function
from mudd_core.models.mup import original_name
from mudd_core.models.unfused import ScoreOptions, weight_columns

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
_ARENA = 2**28  # most bytes of activations in one graph run
_BY_LAYER = ("w_a", "w_f", "g_a", "g_f")  # prefixes of the names that the original splits by layer
STATISTICS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")

# The sown values of each block, by statistic.
_SOWN = {
    "ax": "attn.in",
    "aq": "attn.q",
    "ak": "attn.k",
    "av": "attn.v",
    "aqr": "attn.queries",
    "akr": "attn.keys",
    "ao": "attn.heads",
    "fx": "ffn.in",
    "fh": "ffn.up",
    "fa": "ffn.inner",
}

_STATES = ("embed.out", "blocks.*.mid", "blocks.*.out")
_SWIGLU = "ffn.gate"
_CAPTURED = (*_STATES, *(f"blocks.*.{name}" for name in (*_SOWN.values(), _SWIGLU)))


class MupStatistics:
    """Statistics of an update: activations before it, and the change of the weights."""

    def __init__(self, config: Config, model: Model, shape: MupConfig) -> None:
        """Prepare the statistics. config: the run's config; shape: the model's config."""
        self._log, self._model, self._shape = config.log, model, shape
        self._length = config.train.seq_len
        self._probes: dict[int, Probe] = {}
        self._before: dict[str, Array] = {}
        self._found: dict[str, float] = {}

    def before(self, inputs: Ids) -> None:
        """Store the weights and activations before the update. inputs [B, T]: all sequences of its batch."""
        self._found = self._activations(inputs) if self._log.activations else {}
        if self._log.weights:
            self._before = {name: np.array(value) for name, value in self._model.parameters.items()}

    def after(self, rate: float) -> dict[str, float]:
        """Return all statistics of the update, which used this learning rate."""
        if self._log.weights:
            self._found |= self._updates(rate)
        found, self._found, self._before = self._found, {}, {}
        return found

    def _activations(self, inputs: Ids) -> dict[str, float]:
        """Return the means of |z| over the whole batch, by `<statistic>_l1_<layer>`."""
        shape = self._shape
        samples = _samples(shape, *inputs.shape)
        if samples not in self._probes:
            self._probes[samples] = Probe(self._model, samples, inputs.shape[1], logits=False)
        sums: dict[str, float] = {}
        for first in range(0, len(inputs), samples):
            rows = np.ascontiguousarray(inputs[first : first + samples], np.int32)
            for name, value in self._probes[samples].read(rows).items():
                statistic, _, layer = name.rpartition("_")
                if shape.rotary_base or statistic not in ("aqr", "akr"):
                    key = f"{statistic}_l1_{layer}"
                    sums[key] = sums.get(key, 0.0) + float(np.abs(value).mean(dtype=np.float64))
        return {name: value * samples / len(inputs) for name, value in sums.items()}

    def _updates(self, rate: float) -> dict[str, float]:
        """Return the means of |change| divided by the parameter's learning rate, by `uu_<name>`.

        The names of matrices and gains include the layer.
        """
        sums: dict[str, list[float]] = {}  # [sum of |change|, number of elements] by name
        rates: dict[str, float] = {}
        for ours, before in self._before.items():
            theirs, layer = original_name(ours)
            key = f"uu_{theirs}_{layer:02d}" if theirs.startswith(_BY_LAYER) else f"uu_{theirs}"
            change = np.abs(self._model.parameters[ours] - before).sum(dtype=np.float64)
            total = sums.setdefault(key, [0.0, 0.0])
            total[0] += float(change)
            total[1] += before.size
            rates[key] = rate * float(self._model.store.describe(ours)["lr_scale"])
        return {
            key: change / size / rates[key] if rates[key] else math.nan
            for key, (change, size) in sums.items()
        }


def _samples(shape: MupConfig, batch: int, length: int) -> int:
    """Return the number of sequences in one read: a power of two that divides the batch and keeps within _ARENA."""
    of_row = 4 * length * shape.n_layer * (11 * shape.d_model + 3 * shape.d_ff + 2 * shape.n_head * length)
    samples = batch & -batch
    while samples > 1 and samples * of_row > _ARENA:
        samples //= 2
    return samples


def statistics_of(config: Config, model: Model) -> MupStatistics | None:
    """Return the statistics that the config requests; None if it requests none, and for other families."""
    shape = model.config
    return (
        MupStatistics(config, model, shape)
        if isinstance(shape, MupConfig) and has_statistics(config)
        else None
    )


def has_statistics(config: Config) -> bool:
    """Return True if a run logs these statistics."""
    return isinstance(config.model, MupConfig) and (config.log.weights or config.log.activations)


class Probe:
    """Reads sown values on batches of ids [samples, length]. logits=False omits the logits."""

    def __init__(self, model: Model, samples: int, length: int, *, logits: bool = True) -> None:
        config = model.config
        if not isinstance(config, MupConfig):
            raise TypeError(f"[log] activations: expected a mup transformer, got a {config.family}")
        self._model, self._config = model, config
        recorder = Recorder(model.store, training=False, samples=samples, shards=1, capture=_CAPTURED)
        with running(recorder):
            inputs = recorder.input("inputs", (samples, length))
            hidden = model_function(config)(config, Batch(inputs), None)
            named = {"logits": recorded(hidden.logits())} if logits else {}
        self._values = {name: value.number for name, value in (recorder.sown | named).items()}
        keep = sorted(set(self._values.values()))
        self._executor = _core.Executor(recorder.graph, model.store, losses=[], keep=keep)

    def read(self, inputs: npt.NDArray[np.generic]) -> dict[str, Array]:
        """Return arrays by `<statistic>_<layer, two digits>`, and `logits` if requested."""
        self._executor.set("inputs", inputs)
        self._executor.run()
        kept = {name: np.array(self._executor.get(number)) for name, number in self._values.items()}
        found = {"logits": kept["logits"]} if "logits" in kept else {}
        for layer in range(self._config.n_layer):
            for name, array in self._block(kept, layer).items():
                found[f"{name}_{layer:02d}"] = array
        return found

    def _block(self, kept: Mapping[str, Array], layer: int) -> dict[str, Array]:
        block = f"blocks.{layer}."
        found = {name: kept[f"{block}{sown}"] for name, sown in _SOWN.items()}
        with scopes.precision(self._model.precision):
            found["as"], found["ap"] = scores(self._config, found["aqr"], found["akr"])
        before = kept[f"blocks.{layer - 1}.out" if layer else "embed.out"]
        found["ar"] = kept[f"{block}mid"] - before
        found["fr"] = kept[f"{block}out"] - kept[f"{block}mid"]
        if f"{block}{_SWIGLU}" in kept:  # [gate | up] is one matrix, as the original stores it
            found["fh"] = np.concatenate([kept[f"{block}{_SWIGLU}"], found["fh"]], axis=-1)
        return found


def scores(config: MupConfig, q: Array, k: Array) -> tuple[Array, Array]:
    """Return scores before the mask and attention weights, [B, H, T, T], of q and k [B, T, heads * hd].

    The activation sqrelu returns relu(s)^2 for q and relu(-s)^2 for -q. The square root of a rounded square is exact.
    """
    shape = ScoreOptions(n_head=config.n_head, n_kv_head=config.n_kv_head, scale=config.scale)
    squared = ScoreOptions(**shape, activation="sqrelu", divisor=1, causal=False)
    positive, negative = (weight_columns(x, k, squared) for x in (q, -q))
    asked = ScoreOptions(
        **shape, activation=config.attn_act_name, divisor=config.max_seq_len, eps=config.norm_eps
    )
    return np.sqrt(positive) - np.sqrt(negative), weight_columns(q, k, asked)
