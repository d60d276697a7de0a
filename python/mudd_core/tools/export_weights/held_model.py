"""Models with given weights, which ranks may hold between them, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import LoraConfig, ModelConfig
from mudd_core.engine.cut import Spread
from mudd_core.engine.model import Model

Alive: TypeAlias = Callable[[], None]  # a sign of life of a rank


class Held:
    """The one reference to a model, whose memory is free when it is dropped."""

    def __init__(self, model: Model) -> None:
        self._model: Model | None = model

    @property
    def model(self) -> Model:
        """The model; ValueError after drop()."""
        if self._model is None:
            raise ValueError("[held] model: it was dropped")
        return self._model

    def drop(self) -> None:
        """Free the model."""
        self._model = None


def nothing() -> None:
    """The sign of life of a process that nobody watches."""


def held_model(
    config: ModelConfig,
    weights: Mapping[str, AnyTensor],
    spread: Spread | None = None,
    alive: Alive = nothing,
    lora: LoraConfig | None = None,
) -> Model:
    """A model in fp32, made a tensor at a time. weights: by our names. lora: adapters, whose values are among them.

    spread: how ranks hold it between them; all of them make this call. alive: called for each tensor.
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
    """Give a model these weights, by name; of those that ranks have cut each takes its part, and all make this call."""
    for name, tensor in weights.items():
        alive()
        if model.store.holds(0, name):
            model.set_parameter(name, np.asarray(tensor))
    if model.comm is not None:
        model.comm.barrier()  # ranks of a node may share the weights
