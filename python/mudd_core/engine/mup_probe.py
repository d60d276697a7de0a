"""What happens inside a muP transformer on a fixed batch: the statistics of docs/maths/mup.md, 4.1.

The graph is the model function's own, recorded over the weights that are trained; what the model sows is kept. Scores
and probabilities are never stored by the attention kernel: the op gives them here, column by column, for unit values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core import _core, ops
from mudd_core.config import MupConfig
from mudd_core.graph import scopes
from mudd_core.graph.recording import Recorder, recorded, running
from mudd_core.models import Batch, model_function

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.float32]

STATISTICS = ("ax", "aq", "ak", "av", "aqr", "akr", "as", "ap", "ao", "ar", "fx", "fh", "fa", "fr")
# The part of a block in which the model sows each of them.
_SOWN = dict.fromkeys(("ax", "aq", "ak", "av", "aqr", "akr", "ao"), "attn")
_SOWN |= dict.fromkeys(("fx", "fh", "fa"), "ffn")


class Probe:
    """Reads the inside of a model on batches of [samples, length] ids; logits=False leaves those out."""

    def __init__(self, model: Model, samples: int, length: int, *, logits: bool = True) -> None:
        config = model.config
        if not isinstance(config, MupConfig):
            raise TypeError(f"[log] activations: expected a mup transformer, got a {config.family}")
        self._model, self._config = model, config
        recorder = Recorder(model.store, training=False, samples=samples, shards=1, capture=True)
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
        found = {name: kept[f"{block}{part}.{name}"] for name, part in _SOWN.items()}
        with scopes.precision(self._model.precision):
            found["as"], found["ap"] = scores(self._config, found["aqr"], found["akr"])
        found["ar"] = kept[f"{block}ha"] - kept[f"{block}h"]
        found["fr"] = kept[f"{block}hf"] - kept[f"{block}ha"]
        if f"{block}ffn.fh_up" in kept:  # swiglu: [gate | up], as the original stores them
            found["fh"] = np.concatenate([found["fh"], kept[f"{block}ffn.fh_up"]], axis=-1)
        return found


def scores(config: MupConfig, q: Array, k: Array) -> tuple[Array, Array]:
    """Scores before the mask and what values are weighted with, [B, H, T, T], of q and k [B, T, heads * hd].

    The activation sqrelu gives relu(s)^2 for q and relu(-s)^2 for -q; the root of a rounded square is exact.
    """
    positive, negative = (
        _columns(config, x, k, activation="sqrelu", divisor=1, causal=False) for x in (q, -q)
    )
    activation, longest = config.attn_act_name, config.max_seq_len
    weights = _columns(config, q, k, activation=activation, divisor=longest, eps=config.norm_eps)
    return np.sqrt(positive) - np.sqrt(negative), weights


def _columns(
    config: MupConfig,
    q: Array,
    k: Array,
    *,
    activation: str,
    divisor: int,
    causal: bool = True,
    eps: float = 1e-5,
) -> Array:
    """P [B, H, T, T] of P v by ops.attention: as many columns a call as a head is wide, with unit vectors as v."""
    samples, length, _ = q.shape
    groups = config.n_kv_head
    width = k.shape[-1] // groups
    found = []
    for first in range(0, length, width):
        unit = np.tile(np.eye(length, width, -first, dtype=np.float32), (samples, 1, groups))
        o: Array = ops.attention(
            q,
            k,
            unit,
            n_head=config.n_head,
            n_kv_head=groups,
            scale=config.scale,
            activation=activation,
            divisor=divisor,
            causal=causal,
            eps=eps,
        )
        heads = o.reshape(samples, length, -1, width)
        found.append(heads[..., : length - first].transpose(0, 2, 1, 3))
    return np.concatenate(found, axis=-1)
