"""A look inside a model, by the names of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy.typing as npt

from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array
from mudd_core.config import ModelConfig
from mudd_core.engine.batch_check import checked_batch, checked_ids
from mudd_core.engine.capture import Captured, captured
from mudd_core.engine.value_names import value_names
from mudd_core.engine.watched import Patches, Patching
from mudd_core.graph.adapters import Store
from mudd_core.graph.watching import Patch


class InnerValues:
    """The part of a Model that takes batches, and shows or replaces the values inside."""

    config: ModelConfig
    store: Store
    in_use: InUse
    precision: str
    normalize: str
    evaluated_at_once: int
    _value_names: dict[str, str]  # once somebody asks
    _patches: list[Patches]  # in force, the innermost last

    def names(self) -> dict[str, str]:
        """Name to shape, such as "[B, T, 64]", of the values that capture and patch know, in the order of the model."""
        if not self._value_names:
            self._value_names = value_names(self.config)
        return dict(self._value_names)

    @alone
    def capture(
        self,
        tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        names: str | Sequence[str] = "*",
        *,
        targets: npt.ArrayLike | None = None,
        gradients: bool = False,
    ) -> Captured:
        """The values inside, name to array, of a forward pass over ids [B, T] (or [T], as [1, T]) or a batch.

        names: patterns of names() (`*`, `?`, `[ab]`, `!` before one excludes); only these are kept, and computed where
        no op stores them. targets [B, T]: `loss` is that of the batch, and with gradients=True `gradients` has its
        gradients by these values, and by the parameters whose names the patterns choose, frozen ones too. Nothing is
        dropped at random. UserError with the nearest names for a pattern that matches none.
        """
        if targets is not None:
            given = tokens if isinstance(tokens, Mapping) else {"inputs": tokens}
            tokens = {**given, "targets": targets}
        arrays, _ = self.arrays_of(tokens)
        patterns = [names] if isinstance(names, str) else list(names)
        return captured(self, arrays, patterns, self.patches(), gradients=gradients)

    def patch(self, functions: Mapping[str, Patch]) -> Patching:
        """`with` it: evaluation continues with what a function makes of each value, by a pattern of names().

        A function gets the array [B, T, ...] of a value and returns one of the same shape. logits, loss, evaluate,
        generate (which then computes every token anew, without a cache) and capture see it; training steps and
        loss_and_gradients do not. Of several for a name the innermost or last one is taken.
        """
        return Patching(functions, list(self.names()), self._patches)

    def patches(self) -> dict[str, Patch]:
        """The functions in force, by the names of values."""
        return {name: function for patches in self._patches for name, function in patches.items()}

    # ---- batches --------------------------------------------------------------------------------------------

    def adapt(self, batch: Mapping[str, npt.ArrayLike]) -> Mapping[str, npt.ArrayLike]:
        """A caller's batch as inputs, targets and the optional parts; a model of an original takes its own."""
        return batch

    def checked(self, batch: Mapping[str, npt.ArrayLike]) -> tuple[dict[str, Array], tuple[str, ...]]:
        """(int32 arrays [B, T] of a batch, names of its optional parts); ValueError or TypeError for a bad one."""
        return checked_batch(batch, self.config)

    def arrays_of(
        self, tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike]
    ) -> tuple[dict[str, Array], tuple[str, ...]]:
        """(int32 arrays [B, T] of ids or of a batch, names of its optional parts)."""
        if isinstance(tokens, Mapping):
            return self.checked(self.adapt(tokens))
        return {"inputs": checked_ids(tokens, "tokens", self.config)}, ()

    def denominator(self, count: float, arrays: Mapping[str, Array]) -> float:
        """What sums over a batch are divided by: its counted targets or all its slots, as `normalize` says."""
        if self.normalize == "all_slots":
            return float(arrays["targets"].size)
        return max(1.0, count)
