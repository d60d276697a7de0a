"""What each original program's module says about it, and the model with its interface."""

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
    """One original program, whose models have the configs M of ours.

    `config` is its own settings as a dict, `shapes` the shapes of its tensors by name.
    """

    normalize: ClassVar[str]
    """Denominator of its loss, as loss.normalize: valid, all_slots or micro_mean."""

    families: ClassVar[tuple[str, ...]]
    """Families of ours that it has."""

    advice: ClassVar[Mapping[str, str]] = {}
    """What a user can do about a field of ours that it does not have, by field."""

    def require(self, config: Settings) -> None:
        """ValueError for settings that no weights could have here. Called before a file of weights is opened."""

    decay: ClassVar[str] = "no_norm_no_bias"
    """The weights that its optimizer decays, as optim.decay."""

    def optimizer(self, config: Settings) -> OptimConfig:
        """Return its optimizer, as far as our defaults differ from it."""
        return OptimConfig(decay=self.decay)

    @abstractmethod
    def model_config(self, config: Settings, shapes: Shapes) -> M:
        """Our frozen model config, vocab_size and max_seq_len filled in; ValueError for what we cannot express."""

    @abstractmethod
    def original_config(self, model: M) -> JsonObject:
        """The settings that model_config would turn into this config of ours."""

    @abstractmethod
    def entries(self, model: M, config: Settings) -> Sequence[Entry]:
        """Every parameter of ours and its place in theirs."""

    @abstractmethod
    def shapes(self, model: M, config: Settings) -> Shapes:
        """Shapes of all their tensors by name."""

    @abstractmethod
    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Their batch as ours (inputs, targets, optional positions, segments, key_mask; all [B, T])."""

    def unused(self, config: Settings, name: str) -> bool:
        """Whether a tensor of theirs takes no part in what the program computes."""
        return False

    def reading(
        self, config: Settings, weights: Mapping[str, AnyTensor]
    ) -> tuple[System[M], dict[str, AnyTensor]]:
        """This system in the spelling of the weights, and those of them that it reads."""
        return self, dict(weights)

    def in_family(self, found: M, family: str) -> M:
        """The config that was read back as the same model of another family, where the program has both as one."""
        return found


class Original(Model):
    """A Model that takes batches and gives gradients in the words of an original program."""

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

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """The original's batch as ours; one of ours (inputs and targets, int32 with ignored targets) passes."""
        require_batch(batch)
        return self.system.batch(self.original_config, batch)

    def loss_and_gradients(
        self, batch: Mapping[str, npt.ArrayLike], *, shards: int = 1, **options: Unpack[ExecutorOptions]
    ) -> tuple[float, dict[str, Array]]:
        """As the original computes them, gradients under its names and in its shapes."""
        loss, gradients = super().loss_and_gradients(batch, shards=shards, **options)
        system, config = self.system, self.original_config
        entries, shapes = system.entries(self.config, config), system.shapes(self.config, config)
        return loss, their_gradients(entries, gradients, shapes)

    def original_weights(self) -> TheirTensors:
        """The weights under the original's names and in its shapes, each made when it is asked for."""
        system, config = self.system, self.original_config
        entries, shapes = system.entries(self.config, config), system.shapes(self.config, config)
        return TheirTensors(entries, self.parameters, shapes)


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
