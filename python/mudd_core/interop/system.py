"""What each original program's module says about it, and the model with its interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mudd_core.engine.argument_check import require_batch
from mudd_core.engine.batch_check import check_size
from mudd_core.engine.model import Model
from mudd_core.interop.layout import Entry, to_theirs

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]


class System(Protocol):
    """One original program. `config` is its own settings as a dict, `shapes` the shapes of its tensors by name."""

    normalize: str
    """Denominator of its loss, as loss.normalize: valid, all_slots or micro_mean."""

    families: tuple[str, ...]
    """Families of ours that it has."""

    def model_config(self, config: Mapping[str, Any], shapes: Shapes) -> Any:
        """Our frozen model config, vocab_size and max_seq_len filled in; ValueError for what we cannot express."""

    def original_config(self, model: Any) -> dict[str, Any]:
        """The settings that model_config would turn into this config of ours."""

    def entries(self, model: Any, config: Mapping[str, Any]) -> Sequence[Entry]:
        """Every parameter of ours and its place in theirs."""

    def shapes(self, model: Any, config: Mapping[str, Any]) -> Shapes:
        """Shapes of all their tensors by name."""

    def batch(self, config: Mapping[str, Any], batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Their batch as ours (inputs, targets, optional positions, segments, key_mask; all [B, T])."""


class Original(Model):
    """A Model that takes batches and gives gradients in the words of an original program."""

    def __init__(self, system: System, config: Mapping[str, Any], model_config: Any) -> None:
        super().__init__(model_config, initialize=False)
        self.system = system
        self.original_config = dict(config)
        self.normalize = system.normalize

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """The original's batch as ours; one of ours (inputs and targets, int32 with ignored targets) passes."""
        require_batch(batch)
        return self.system.batch(self.original_config, batch)

    def loss_and_gradients(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1, **options: Any
    ) -> tuple[float, dict[str, Array]]:
        """As the original computes them, gradients under its names and in its shapes."""
        loss, gradients = super().loss_and_gradients(batch, shards=shards, **options)
        return loss, self._in_their_words(gradients, gradient=True)

    def original_weights(self) -> dict[str, Array]:
        """The weights under the original's names and in its shapes."""
        return self._in_their_words(self.parameters, gradient=False)

    def _in_their_words(self, ours: Mapping[str, Array], gradient: bool) -> dict[str, Array]:
        system, config = self.system, self.original_config
        entries, shapes = system.entries(self.config, config), system.shapes(self.config, config)
        return to_theirs(entries, ours, shapes, gradient=gradient)


def as_ids(values: npt.ArrayLike, name: str) -> Array:
    """int32 [B, T] of whole numbers of any type; TypeError for other types."""
    array = np.asarray(values)
    if array.dtype.kind not in "iub":
        raise TypeError(f"[interop] {name}: expected whole numbers, got {array.dtype}")
    check_size(array, "interop", name)
    bounds = np.iinfo(np.int32)
    if array.size and not bounds.min <= int(array.min()) <= int(array.max()) <= bounds.max:
        raise ValueError(f"[interop] {name}: expected 32-bit ids, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(np.atleast_2d(array), dtype=np.int32)
