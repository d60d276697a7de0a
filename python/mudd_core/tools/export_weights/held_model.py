"""Models with given weights, possibly sharded across ranks. Only one model is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.engine.cut import Spread
from mudd_core.engine.model import Model

Alive: TypeAlias = Callable[[], None]  # the heartbeat of a rank


class Held:
    """The only reference to a model. Dropping it frees the memory."""

    def __init__(self, model: Model) -> None:
        self._model: Model | None = model

    @property
    def model(self) -> Model:
        """Return the model; raise ValueError after drop()."""
        if self._model is None:
            raise ValueError("[held] model: it was dropped")
        return self._model

    def drop(self) -> None:
        """Free the model."""
        self._model = None


def nothing() -> None:
    """Do nothing: the heartbeat of a process that is not watched."""


def held_model(
    config: ModelConfig,
    weights: Mapping[str, AnyTensor],
    spread: Spread | None = None,
    alive: Alive = nothing,
    lora: LoraConfig | None = None,
) -> Model:
    """Build an fp32 model, one tensor at a time. weights: by mudd_core's names. lora: adapters, also in `weights`.

    spread: the distribution of the model over ranks, which all make this call. alive: called for each tensor.
    """
    spread = spread or Spread()
    model = Model(
        config,
        initialize=False,
        precision="fp32",
        lora=lora,
        comm=spread.comm,
        experts=spread.experts,
        cut=spread.cut,
    )
    take_weights(model, weights, alive)
    return model


def take_weights(model: Model, weights: Mapping[str, AnyTensor], alive: Alive = nothing) -> None:
    """Set a model's weights by name. Each rank sets its shard of sharded weights, so all ranks must make this call."""
    for name, tensor in weights.items():
        alive()
        if model.store.holds(0, name):
            model.set_parameter(name, np.asarray(tensor))
    if model.comm is not None:
        model.comm.barrier()  # wait, because ranks of a node may share the weights
