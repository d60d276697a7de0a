"""The interface of each original program's module, and the model that accepts its batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import ModelConfig, OptimConfig
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_batch
from mudd_core.engine.batch_check import check_size
from mudd_core.engine.cut import Cut
from mudd_core.engine.model import Model
from mudd_core.engine.planned import ExecutorOptions
from mudd_core.interop.layout import Entry, TheirTensors, their_gradients
from mudd_core.interop.settings import Settings

Shapes = Mapping[str, tuple[int, ...]]
M = TypeVar("M", bound=ModelConfig)


class System(ABC, Generic[M]):
    """An original program. M: the type of the mudd_core configs of its models.

    `config` is its own settings as a dict, `shapes` the shapes of its tensors by name.
    """

    normalize: ClassVar[str]
    """Denominator of its loss, as loss.normalize: valid, all_slots or micro_mean."""

    families: ClassVar[tuple[str, ...]]
    """The mudd_core families that it has."""

    advice: ClassVar[Mapping[str, str]] = {}
    """Advice for users about fields of the model config that it does not have, by field."""

    def of_text(self, config: Settings) -> JsonObject:
        """Return the settings of the language model, if a model has further parts. Raise ValueError without them."""
        return dict(config)

    def require(self, config: Settings) -> None:
        """Raise ValueError for settings that are wrong for any weights. Called before a file of weights is opened."""

    decay: ClassVar[str] = "no_norm_no_bias"
    """The weights that its optimizer decays, as optim.decay."""

    def optimizer(self, config: Settings) -> OptimConfig:
        """Return its optimizer: only the fields that differ from mudd_core's defaults."""
        return OptimConfig(decay=self.decay)

    @abstractmethod
    def model_config(self, config: Settings, shapes: Shapes) -> M:
        """Return the mudd_core config, with vocab_size and max_seq_len. Raise ValueError for unsupported settings."""

    @abstractmethod
    def original_config(self, model: M) -> JsonObject:
        """Return the settings that model_config converts to this mudd_core config."""

    @abstractmethod
    def entries(self, model: M, config: Settings) -> Sequence[Entry]:
        """Return where each mudd_core parameter is stored in the original's tensors."""

    @abstractmethod
    def shapes(self, model: M, config: Settings) -> Shapes:
        """Return the shape of every tensor of the original, by name."""

    @abstractmethod
    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the mudd_core batch: inputs, targets, optional positions, segments and key_mask, all [B, T]."""

    def unused(self, config: Settings, name: str) -> bool:
        """Return True if the original program does not read this tensor."""
        return False

    def reading(
        self, config: Settings, weights: Mapping[str, AnyTensor]
    ) -> tuple[System[M], dict[str, AnyTensor]]:
        """Return this system with the spelling of the weights, and the weights that it reads."""
        return self, dict(weights)

    def in_family(self, found: M, family: str) -> M:
        """Return a config that was read back, as the same model of another family.

        Only programs that use one class for both families override this.
        """
        return found


class Original(Model):
    """A Model that accepts the batches of an original program and returns gradients under its names."""

    def __init__(
        self,
        system: System[ModelConfig],
        config: Settings,
        model_config: ModelConfig,
        *,
        comm: Comm | None = None,
        experts: _core.ExpertGroup | None = None,
        cut: Cut | None = None,
    ) -> None:
        super().__init__(model_config, initialize=False, comm=comm, experts=experts, cut=cut)
        self.system = system
        self.original_config = dict(config)
        self.normalize = system.normalize

    def _empty_twin(self) -> Original:
        return Original(self.system, self.original_config, self.config)

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """Return the mudd_core batch for a batch of the original.

        A mudd_core batch (int32 inputs and targets, with ignored targets) is returned as it is.
        """
        require_batch(batch)
        return self.system.batch(self.original_config, batch)

    def loss_and_gradients(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1, **options: Unpack[ExecutorOptions]
    ) -> tuple[float, dict[str, Array]]:
        """Return the loss and the gradients as the original computes them, under its names and in its shapes."""
        loss, gradients = super().loss_and_gradients(batch, shards=shards, **options)
        system, config = self.system, self.original_config
        entries, shapes = system.entries(self.config, config), system.shapes(self.config, config)
        return loss, their_gradients(entries, gradients, shapes)

    def original_weights(self) -> TheirTensors:
        """Return the weights under the original's names and in its shapes; each is computed when it is read."""
        system, config = self.system, self.original_config
        entries, shapes = system.entries(self.config, config), system.shapes(self.config, config)
        return TheirTensors(entries, self.parameters, shapes)


def as_ids(values: npt.ArrayLike, name: str) -> Array:
    """Return int32 [B, T] for integers of any type. Raise TypeError for other types."""
    array = np.asarray(values)
    if array.dtype.kind not in "iub":
        raise TypeError(f"[interop] {name}: expected whole numbers, got {array.dtype}")
    check_size(array, "interop", name)
    bounds = np.iinfo(np.int32)
    if array.size and not bounds.min <= int(array.min()) <= int(array.max()) <= bounds.max:
        raise ValueError(f"[interop] {name}: expected 32-bit ids, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(np.atleast_2d(array), dtype=np.int32)
