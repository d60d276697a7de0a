"""The first value at which two models differ on one batch, or a model and the arrays of another program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.base.types import is_number
from mudd_core.engine.model import Model
from mudd_core.fingerprint.alone import Alone, first_alone, model_title
from mudd_core.fingerprint.arrays import differs_from_arrays
from mudd_core.fingerprint.compared import Pair, first_pair
from mudd_core.fingerprint.difference import Difference, measure
from mudd_core.fingerprint.levels import AtLevel, require_levels
from mudd_core.fingerprint.lines import Line
from mudd_core.fingerprint.observed import Observed, Watched

_AT_ONCE = 256 << 20  # bytes of values that are copied from one run


def first_difference(
    a: Model,
    b: Model | Mapping[str, npt.ArrayLike],
    batch: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    *,
    ulp: float = 0,
    names: Mapping[str, str] | None = None,
    levels: Sequence[str] | None = None,
) -> Difference | None:
    """Return the first value at which two models differ on a batch, with the op that computed it; None if all agree.

    batch: ids [B, T], to compare forward passes; or a batch with targets, to compare forward and backward. The weights
    come first: of two models with other weights the first difference is a weight. ulp=0 compares bits. ulp=64 returns
    the first value that differs by more than 64 units of the last place of the coarser precision: where bf16 leaves
    fp32. The unit is taken at the scale of the values, so differences of elements near zero are small. b may also be
    arrays of another program, by names of Model.names() or of parameters. names: a table from their names to these.
    A weight or an op that only one model has is a difference too. levels: the instruction set levels of a and b, such
    as ("avx512_bf16", "avx2"), each in its own process; a and b may then be one model. Raise UserError for models
    of two families.
    """
    if not isinstance(a, Model):
        raise TypeError(f"[diff] a: expected an mc.Model, got {type(a).__name__}")
    if not is_number(ulp) or not 0 <= ulp < math.inf:
        raise ValueError(f"[diff] ulp: expected a finite number from 0 on, got {ulp!r}")
    if isinstance(b, Mapping):
        if levels is not None:
            raise ValueError(
                "[diff] levels: expected two models, got a dict of arrays as b; leave levels out"
            )
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
    if levels is not None:
        return _at_levels((a, b), batch, levels, ulp)
    with a.in_use, b.in_use:
        return _first(Observed(a, batch), Observed(b, batch), ulp)


def _at_levels(
    models: tuple[Model, Model],
    batch: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    levels: Sequence[str],
    ulp: float,
) -> Difference | None:
    require_levels(levels)
    with TemporaryDirectory(prefix="mudd-levels-") as folder:
        one, other = (
            AtLevel(model, batch, level, Path(folder) / side)
            for model, level, side in zip(models, levels, "ab", strict=True)
        )
        return _first(one, other, ulp)


def _first(one: Watched, other: Watched, ulp: float) -> Difference | None:
    pairs, alone = _common(one.lines(), other.lines())
    exact = ulp == 0 and all(pair.a.dtype == pair.b.dtype for pair in pairs)
    found = _first_bits(one, other, pairs) if exact else _first_far(one, other, pairs, ulp)
    return alone.difference((one.loss, other.loss)) if found is None and alone is not None else found


def _first_bits(a: Watched, b: Watched, pairs: Sequence[Pair]) -> Difference | None:
    pair = first_pair(pairs)
    if pair is None:
        return None
    key = pair.a.key
    x, y = (model.values([key])[key] for model in (a, b))
    return measure(pair, x, y, (a.loss, b.loss), title=model_title(pair.a))


def _first_far(a: Watched, b: Watched, common: Sequence[Pair], ulp: float) -> Difference | None:
    unit = "bfloat16" if "bf16" in (a.precision, b.precision) else "float32"
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
