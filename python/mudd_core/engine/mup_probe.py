"""What happens inside a muP transformer on a fixed batch: the statistics of docs/maths/mup.md, 4.1.

The graph is the model function's own, recorded over the weights that are trained; what the model sows is kept. Scores
and probabilities are never stored by the attention kernel: the op gives them here, column by column, for unit values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.config import MupConfig
from mudd_core.graph import scopes
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, model_function
from mudd_core.models.unfused import ScoreOptions, weight_columns

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.float32]

STATISTICS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")
# What the model sows of each block, by statistic.
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


class Probe:
    """Reads the inside of a model on batches of [samples, length] ids; logits=False leaves those out."""

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
        """Arrays by `<statistic>_<layer, two digits>`, and `logits` where they are asked for."""
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
        if f"{block}{_SWIGLU}" in kept:  # [gate | up], as the original stores them
            found["fh"] = np.concatenate([kept[f"{block}{_SWIGLU}"], found["fh"]], axis=-1)
        return found


def scores(config: MupConfig, q: Array, k: Array) -> tuple[Array, Array]:
    """Scores before the mask and what values are weighted with, [B, H, T, T], of q and k [B, T, heads * hd].

    The activation sqrelu gives relu(s)^2 for q and relu(-s)^2 for -q; the root of a rounded square is exact.
    """
    shape = ScoreOptions(n_head=config.n_head, n_kv_head=config.n_kv_head, scale=config.scale)
    squared = ScoreOptions(**shape, activation="sqrelu", divisor=1, causal=False)
    positive, negative = (weight_columns(x, k, squared) for x in (q, -q))
    asked = ScoreOptions(
        **shape, activation=config.attn_act_name, divisor=config.max_seq_len, eps=config.norm_eps
    )
    return np.sqrt(positive) - np.sqrt(negative), weight_columns(q, k, asked)
