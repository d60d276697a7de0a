"""A look inside a model, by the names of its values: Model.inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy.typing as npt

from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array
from mudd_core.engine import watched
from mudd_core.engine.bare_model import BareModel
from mudd_core.engine.capture import Captured, captured
from mudd_core.engine.value_names import value_names
from mudd_core.engine.watched import Patches, Patching
from mudd_core.graph.watching import Patch


@dataclass
class InForce:
    """The names of a model's values, once they are listed, and the patches in force, the innermost last."""

    names: dict[str, str] = field(default_factory=dict)
    patches: list[Patches] = field(default_factory=list)


class Inside:
    """The values inside a model: their names, their arrays, and other values in their place."""

    # A Model does not keep this object, which would refer back to it: its memory is free when its last user is gone.
    def __init__(self, model: BareModel, in_force: InForce) -> None:
        self._model, self._in_force = model, in_force

    @property
    def in_use(self) -> InUse:
        """The lock of the model."""
        return self._model.in_use

    def names(self) -> dict[str, str]:
        """Name to shape, such as "[B, T, 64]", of the values that capture and patch know, in the order of the model."""
        if not self._in_force.names:
            self._in_force.names = value_names(self._model.config)
        return dict(self._in_force.names)

    @alone
    def capture(
        self,
        tokens: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        names: str | Sequence[str] = "*",
        *,
        targets: npt.ArrayLike | None = None,
        gradients: bool = False,
    ) -> Captured:
        """Return the values of a forward pass, as Model.capture does."""
        if targets is not None:
            given = tokens if isinstance(tokens, Mapping) else {"inputs": tokens}
            tokens = {**given, "targets": targets}
        arrays, _ = self._model.arrays_of(tokens)
        patterns = [names] if isinstance(names, str) else list(names)
        return captured(self._model, arrays, list(self.names()), patterns, self.patches, gradients=gradients)

    def patch(self, functions: Mapping[str, Patch]) -> Patching:
        """Replace values inside a `with`, as Model.patch does."""
        return Patching(functions, list(self.names()), self._in_force.patches)

    # ---- what a model computes under its patches ------------------------------------------------------------

    @property
    def is_patched(self) -> bool:
        """True while a patch is in force."""
        return bool(self._in_force.patches)

    @property
    def patches(self) -> dict[str, Patch]:
        """The functions in force, by the names of values."""
        return {name: function for patches in self._in_force.patches for name, function in patches.items()}

    def logits(self, arrays: Mapping[str, Array]) -> Array:
        """Return the logits [B, T, V] of the arrays of a batch."""
        return watched.patched_logits(self._model, self.patches, arrays)

    def loss(self, arrays: Mapping[str, Array], shards: int) -> tuple[float, float]:
        """Return (summed nats with the auxiliary ones, counted targets) of a batch."""
        return watched.patched_loss(self._model, self.patches, arrays, shards)

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Return summed nats, counted and guessed targets, as Model.evaluate does."""
        return watched.patched_evaluation(self._model, self.patches, batch)

    def tokens(
        self, prompt: Array, count: int, sample: Callable[[Array, int], int], ring: int
    ) -> Iterator[int]:
        """Return up to `count` tokens after the prompt [T], each from the logits of all tokens before it."""
        return watched.patched_tokens(self._model, self.patches, prompt, count, sample, ring)


class ShownInside(BareModel):
    """The part of a Model that shows or replaces the values inside, by the calls of docs/inside.md."""

    _in_force: InForce

    @property
    def inside(self) -> Inside:
        """The values inside: names, capture and patch (docs/inside.md), and what evaluation computes under patches."""
        return Inside(self, self._in_force)

    def names(self) -> dict[str, str]:
        """Name to shape, such as "[B, T, 64]", of the values that capture and patch know, in the order of the model."""
        return self.inside.names()

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
        return self.inside.capture(tokens, names, targets=targets, gradients=gradients)

    def patch(self, functions: Mapping[str, Patch]) -> Patching:
        """`with` it: evaluation continues with what a function makes of each value, by a pattern of names().

        A function gets the array [B, T, ...] of a value and returns one of the same shape. logits, loss, evaluate,
        generate (which then computes every token anew, without a cache) and capture see it; training steps and
        loss_and_gradients do not. Of several for a name the innermost or last one is taken.
        """
        return self.inside.patch(functions)
