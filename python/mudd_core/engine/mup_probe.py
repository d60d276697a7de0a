"""What happens inside a muP transformer on a fixed batch: the statistics of docs/maths/mup.md, 4.1.

The graph is the model function's own, recorded over the weights that are trained; what the model sows is kept. Scores
and probabilities are never stored by the attention kernel: the op gives them here, column by column, for unit values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mudd_core import _core, ops
from mudd_core.graph import scopes
from mudd_core.graph.recording import Recorder, running
from mudd_core.models import Batch, model_function

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.float32]

STATISTICS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")
_SOWN = {"ax": "attn", "aq": "attn", "ak": "attn", "av": "attn", "aqr": "attn", "akr": "attn", "ao": "attn",
         "fx": "ffn", "fh": "ffn", "fa": "ffn"}  # fmt: skip


class Probe:
    """Reads the inside of a model on batches of [samples, length] ids; logits=False leaves those out."""

    def __init__(self, model: Model, samples: int, length: int, *, logits: bool = True) -> None:
        self._model = model
        recorder = Recorder(model.store, training=False, samples=samples, shards=1)
        recorder.sown = {}
        with running(recorder):
            inputs = recorder.input("inputs", (samples, length))
            hidden = model_function(model.config)(model.config, Batch(inputs), None)
            named = {"logits": hidden.logits()} if logits else {}
        self._values = {name: value.number for name, value in (recorder.sown | named).items()}
        keep = sorted(set(self._values.values()))
        self._executor = _core.Executor(recorder.graph, model.store, losses=[], keep=keep)

    def read(self, inputs: npt.NDArray[np.generic]) -> dict[str, Array]:
        """Arrays by `<statistic>_<layer, two digits>`, and `logits` where they are asked for."""
        self._executor.set("inputs", inputs)
        self._executor.run()
        kept = {name: np.array(self._executor.get(number)) for name, number in self._values.items()}
        found = {"logits": kept["logits"]} if "logits" in kept else {}
        for layer in range(self._model.config.n_layer):
            for name, array in self._block(kept, layer).items():
                found[f"{name}_{layer:02d}"] = array
        return found

    def _block(self, kept: Mapping[str, Array], layer: int) -> dict[str, Array]:
        block = f"blocks.{layer}."
        found = {name: kept[f"{block}{part}.{name}"] for name, part in _SOWN.items()}
        with scopes.precision(self._model.precision):
            found["as"], found["ap"] = scores(self._model.config, found["aqr"], found["akr"])
        found["ar"] = kept[f"{block}ha"] - kept[f"{block}h"]
        found["fr"] = kept[f"{block}hf"] - kept[f"{block}ha"]
        if f"{block}ffn.fh_up" in kept:  # swiglu: [gate | up], as the original stores them
            found["fh"] = np.concatenate([found["fh"], kept[f"{block}ffn.fh_up"]], axis=-1)
        return found


def scores(config: Any, q: Array, k: Array) -> tuple[Array, Array]:
    """Scores before the mask and what values are weighted with, [B, H, T, T], of q and k [B, T, heads * hd].

    The activation sqrelu gives relu(s)^2 for q and relu(-s)^2 for -q; the root of a rounded square is exact.
    """
    options = {"n_head": config.n_head, "n_kv_head": config.n_kv_head, "scale": config.scale}
    positive, negative = (
        _columns(x, k, activation="sqrelu", divisor=1, causal=False, **options) for x in (q, -q)
    )
    weights = _columns(
        q, k, activation=config.attn_act_name, divisor=config.max_seq_len, eps=config.norm_eps, **options
    )
    return np.sqrt(positive) - np.sqrt(negative), weights


def _columns(q: Array, k: Array, **options: Any) -> Array:
    """P [B, H, T, T] of P v by ops.attention: as many columns a call as a head is wide, with unit vectors as v."""
    samples, length, _ = q.shape
    groups = options["n_kv_head"]
    width = k.shape[-1] // groups
    found = []
    for first in range(0, length, width):
        unit = np.tile(np.eye(length, width, -first, dtype=np.float32), (samples, 1, groups))
        o = ops.attention(q, k, unit, **options).reshape(samples, length, -1, width)
        found.append(o[..., : length - first].transpose(0, 2, 1, 3))
    return np.concatenate(found, axis=-1)
