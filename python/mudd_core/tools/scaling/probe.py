"""What happens inside a muP transformer on a fixed batch: the statistics of spec/mup.md d.1.

The graph is the model function's own, recorded over the weights that are trained; what the page sows is kept. Scores
and their probabilities, which the kernels never write down, are computed here from the kept queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.models import Batch, model_function
from mudd_core.recording import Recorder, running

Array = npt.NDArray[Any]

STATISTICS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")
_SOWN = {"ax": "attn", "aq": "attn", "ak": "attn", "av": "attn", "aqr": "attn", "akr": "attn", "ao": "attn",
         "fx": "ffn", "fa": "ffn"}  # fmt: skip


class Probe:
    """Reads the inside of a model on batches of [samples, length] ids."""

    def __init__(self, model: Any, samples: int, length: int) -> None:
        self._model = model
        recorder = Recorder(model.store, training=False, samples=samples, shards=1)
        recorder.sown = {}
        with running(recorder):
            inputs = recorder.input("inputs", (samples, length))
            logits = model_function(model.config)(model.config, Batch(inputs), None).logits()
        self._values = {name: value.number for name, value in recorder.sown.items()}
        self._values["logits"] = logits.number
        keep = sorted(set(self._values.values()))
        self._executor = _core.Executor(recorder.graph, model.store, losses=[], keep=keep)

    def read(self, inputs: Array) -> dict[str, Array]:
        """Arrays by `<statistic>_<layer, two digits>`, and `logits`."""
        self._executor.set("inputs", inputs)
        self._executor.run()
        kept = {name: np.array(self._executor.get(number)) for name, number in self._values.items()}
        found = {"logits": kept["logits"]}
        for layer in range(self._model.config.n_layer):
            for name, array in self._block(kept, layer).items():
                found[f"{name}_{layer:02d}"] = array
        return found

    def _block(self, kept: Mapping[str, Array], layer: int) -> dict[str, Array]:
        config, weights, block = self._model.config, self._model.parameters, f"blocks.{layer}."
        found = {name: kept[f"{block}{part}.{name}"] for name, part in _SOWN.items()}
        found["as"], found["ap"] = scores(config, found["aqr"], found["akr"])
        found["ar"] = kept[f"{block}ha"] - kept[f"{block}h"]
        found["fr"] = kept[f"{block}hf"] - kept[f"{block}ha"]
        names = ("gate", "up") if config.ff_act_name == "swiglu" else ("up",)
        inner = []
        for name in names:
            bias = weights.get(f"{block}ffn.{name}.b")
            inner.append(found["fx"] @ weights[f"{block}ffn.{name}.w"] + (0 if bias is None else bias))
        found["fh"] = np.concatenate(inner, axis=-1)
        return found


def scores(config: Any, q: Array, k: Array) -> tuple[Array, Array]:
    """Scores before the mask and what values are weighted with, [B, H, T, T], of q and k [B, T, heads * hd]."""
    samples, length, _ = q.shape
    heads, groups, width = config.n_head, config.n_kv_head, config.d_head
    qs = q.reshape(samples, length, heads, width).transpose(0, 2, 1, 3)
    ks = k.reshape(samples, length, groups, width).transpose(0, 2, 3, 1)
    s: Array = (qs @ np.repeat(ks, heads // groups, axis=1)) * np.float32(config.scale)
    see = np.tril(np.ones((length, length), bool))
    if config.attn_act_name == "softmax":
        hidden = np.where(see, s, -np.inf)
        e = np.exp(hidden - hidden.max(-1, keepdims=True))
        return s, e / e.sum(-1, keepdims=True)
    positive = np.maximum(s, 0)
    kind = config.attn_act_name.removeprefix("norm_")
    a = np.where(see, positive**2 if kind == "sqrelu" else positive + np.exp(np.minimum(s, 0)), 0)
    if config.attn_act_name == kind:
        return s, a / np.float32(config.max_seq_len)
    return s, a / (np.float32(config.norm_eps) + a.sum(-1, keepdims=True))
