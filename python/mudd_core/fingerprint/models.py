"""The first value at which two models differ on one batch, or a model and the arrays of another program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.engine.model import Model
from mudd_core.fingerprint.alone import Alone, first_alone, model_title
from mudd_core.fingerprint.arrays import differs_from_arrays
from mudd_core.fingerprint.compared import Pair, first_pair
from mudd_core.fingerprint.difference import Difference, measure
from mudd_core.fingerprint.lines import Key, Line
from mudd_core.fingerprint.recording import kept_of, lines_of

_AT_ONCE = 256 << 20  # bytes of values that are copied from one run


def first_difference(
    a: Model,
    b: Model | Mapping[str, npt.ArrayLike],
    batch: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    *,
    ulp: float = 0,
    names: Mapping[str, str] | None = None,
) -> Difference | None:
    """Return the first value at which two models differ on a batch, with the op that computed it; None if all agree.

    batch: ids [B, T], to compare forward passes; or a batch with targets, to compare forward and backward. The weights
    come first: of two models with other weights the first difference is a weight. ulp=0 compares bits. ulp=64 returns
    the first value that differs by more than 64 units of the last place of the coarser precision: where bf16 leaves
    fp32. The unit is taken at the scale of the values, so differences of elements near zero are small. b may also be
    arrays of another program, by names of Model.names() or of parameters. names: a table from their names to these.
    A weight or an op that only one model has is a difference too. Raise UserError for models of two families.
    """
    if not isinstance(a, Model):
        raise TypeError(f"[diff] a: expected an mc.Model, got {type(a).__name__}")
    if isinstance(ulp, bool) or not isinstance(ulp, (int, float)) or not 0 <= ulp < math.inf:
        raise ValueError(f"[diff] ulp: expected a finite number from 0 on, got {ulp!r}")
    if isinstance(b, Mapping):
        return differs_from_arrays(a, b, batch, ulp, names)
    if not isinstance(b, Model):
        raise TypeError(f"[diff] b: expected an mc.Model or a dict of arrays, got {type(b).__name__}")
    if a.config.family != b.config.family:
        raise UserError(
            f"[diff] b: expected a model of the family {a.config.family} as a, got {b.config.family}; for chosen "
            "values, pass dict(b.capture(batch, [...])) as b and names={NAME_IN_B: NAME_IN_A}"
        )
    if names is not None:
        raise ValueError(
            "[diff] names: expected none for two models, because their values have the same names"
        )
    one, other = _Observed(a, batch), _Observed(b, batch)
    with a.in_use, b.in_use:
        pairs, alone = _common(one.lines(), other.lines())
        exact = ulp == 0 and all(pair.a.dtype == pair.b.dtype for pair in pairs)
        found = _first_bits(one, other, pairs) if exact else _first_far(one, other, pairs, ulp)
    return alone.difference((one.loss, other.loss)) if found is None and alone is not None else found


class _Observed:
    """Runs of a model on a batch that show their values."""

    def __init__(self, model: Model, batch: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> None:
        if model.inside.is_patched:
            raise UserError("[diff] patch: expected models without an active patch; leave the patch first")
        self.model = model
        self._arrays, self._optional = model.arrays_of(batch)
        self.loss = math.nan

    def lines(self) -> tuple[Line, ...]:
        fingerprint = _core.Fingerprint()
        self._run(fingerprint)
        return lines_of(fingerprint)

    def values(self, keys: Sequence[Key]) -> dict[Key, Array]:
        """Return copies of some values."""
        values = _core.Values([(key.stage, key.run, key.place, key.value) for key in keys])
        self._run(values)
        return kept_of(values)

    def _run(self, observer: _core.NodeObserver) -> None:
        trains, shape = "targets" in self._arrays, self._arrays["inputs"].shape
        mode = "train" if trains else "logits"
        planned = self.model.plan(mode, *shape, optional=self._optional, gradient_rows=False)
        planned.fill(self._arrays)
        planned.executor.show_weights(observer)
        planned.executor.observe(observer)
        try:
            planned.executor.run()
        finally:
            planned.executor.observe(None)
        if trains:
            loss, count = planned.sums()
            self.loss = loss / self.model.denominator(count, self._arrays)


def _first_bits(a: _Observed, b: _Observed, pairs: Sequence[Pair]) -> Difference | None:
    pair = first_pair(pairs)
    if pair is None:
        return None
    key = pair.a.key
    x, y = (model.values([key])[key] for model in (a, b))
    return measure(pair, x, y, (a.loss, b.loss), title=model_title(pair.a))


def _first_far(a: _Observed, b: _Observed, common: Sequence[Pair], ulp: float) -> Difference | None:
    unit = "bfloat16" if "bf16" in (a.model.precision, b.model.precision) else "float32"
    for pairs in _chunks(common):
        keys = [pair.a.key for pair in pairs]
        x, y = a.values(keys), b.values(keys)
        for pair in pairs:
            key = pair.a.key
            found = measure(pair, x[key], y[key], (a.loss, b.loss), ulp, unit, title=model_title(pair.a))
            if found.count:
                return found
    return None


def _common(a: Sequence[Line], b: Sequence[Line]) -> tuple[list[Pair], Alone | None]:
    """Return the values that both have, up to the first one that only one model has, and this one."""
    others = {(line.key, line.shape): line for line in b}
    pairs = [Pair(line, others[line.key, line.shape]) for line in a if (line.key, line.shape) in others]
    alone = first_alone(a, b)
    return (pairs if alone is None else pairs[: alone.common]), alone


def _chunks(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    size = 0
    for pair in pairs:
        bytes_here = 8 * int(np.prod(pair.a.shape))
        if chunk and size + bytes_here > _AT_ONCE:
            yield chunk
            chunk, size = [], 0
        chunk.append(pair)
        size += bytes_here
    yield chunk
