"""The settings and weights of a model, and its checks of batches: the base of all parts of Model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt

from mudd_core.base.in_use import InUse
from mudd_core.base.types import Array
from mudd_core.config import LoraConfig, LossConfig, ModelConfig
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import kind_of
from mudd_core.engine.batch_check import checked_batch, checked_ids
from mudd_core.engine.pairs import checked_pairs
from mudd_core.engine.teaching import Teaching, split_teacher
from mudd_core.graph.parameters import Store


class BareModel:
    """A Model without the graphs over its weights. Model documents the attributes."""

    config: ModelConfig
    store: Store
    in_use: InUse
    precision: str
    normalize: str
    pairs: LossConfig | None
    regularized: LossConfig | None
    evaluated_at_once: int
    comm: Comm | None
    lora: LoraConfig | None
    teaching: Teaching | None

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """Return a caller's batch as inputs, targets and optional arrays.

        Models of original programs override this method.
        """
        return batch

    def checked(self, batch: Mapping[str, npt.ArrayLike]) -> tuple[dict[str, Array], tuple[str, ...]]:
        """Return (int32 arrays [B, T] of a batch, names of its optional arrays); raise ValueError or TypeError if
        invalid.
        """
        if self.pairs is not None:
            return checked_pairs(batch, self.config, self.pairs)
        ids, taught = (batch, {}) if self.teaching is None else split_teacher(batch, self.teaching)
        arrays, optional = checked_batch(ids, self.config)
        return {**arrays, **taught}, (*optional, *taught)

    def arrays_of(
        self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]
    ) -> tuple[dict[str, Array], tuple[str, ...]]:
        """Return (int32 arrays [B, T] of ids or of a batch, names of its optional arrays)."""
        if isinstance(tokens, Mapping):
            return self.checked(self.adapt(tokens))
        return {"inputs": checked_ids(tokens, "tokens", self.config)}, ()

    def denominator(self, count: float, arrays: Mapping[str, Array]) -> float:
        """Return the denominator of sums over a batch: its counted targets or all its positions, by `normalize`."""
        if self.normalize == "all_slots":
            return float(arrays["targets"].size)
        return max(1.0, count)


def require_model(model: BareModel) -> None:
    """Raise TypeError unless `model` is an mc.Model or comes from interop.load_original."""
    if not (hasattr(model, "store") and hasattr(model, "config")):
        raise TypeError(
            f"[Trainer] model: expected an mc.Model, got {kind_of(model)}; pass mc.Model(config.model), "
            'or choose a family with the config: mc.Trainer("gpt2/tiny.py")'
        )
