"""The teacher of a model: the inputs of its graphs that have the teacher's probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array
from mudd_core.data.rows import TEACHER_PARTS
from mudd_core.graph.recording import Like
from mudd_core.models import Taught


@dataclass(frozen=True)
class Teaching:
    """The settings of a teacher. kept: the tokens that it kept for each target. weight: of the divergence from it."""

    kept: int
    weight: float

    def of_mode(self, mode: str) -> Teaching:
        """Return the settings of a graph. An evaluation measures the cross-entropy, and the divergence apart."""
        return replace(self, weight=0.0) if mode == "evaluate" else self

    def taught(self, inputs: Mapping[str, Like]) -> Taught:
        """Return the teacher's values among the inputs of a graph."""
        ids, log_probs = (inputs[name] for name in TEACHER_PARTS)
        return Taught(ids, log_probs, self.weight)


def input_shape(name: str, shape: tuple[int, int], teaching: Teaching | None) -> tuple[tuple[int, ...], str]:
    """Return (shape, dtype) of an input of a graph. shape: of the ids."""
    if name not in TEACHER_PARTS or teaching is None:
        return shape, "int32"
    return (*shape, teaching.kept), "int32" if name == TEACHER_PARTS[0] else "float32"


def has_teacher(names: Sequence[str] | Mapping[str, Array]) -> bool:
    """Return whether a batch, or a graph with these inputs, has a teacher."""
    return TEACHER_PARTS[0] in names


def split_teacher(
    batch: Mapping[str, npt.ArrayLike], teaching: Teaching | None
) -> tuple[dict[str, npt.ArrayLike], dict[str, Array]]:
    """Return (the arrays of ids, the arrays of a teacher) of a batch.

    Raise ValueError if a teacher's array does not have the shape [B, T, K] of the model's teacher.
    """
    ids = {name: array for name, array in batch.items() if name not in TEACHER_PARTS}
    taught = {name: np.asarray(batch[name]) for name in TEACHER_PARTS if name in batch}
    length = np.shape(batch["inputs"])
    for name, array in taught.items():
        wanted, dtype = input_shape(name, (length[0], length[-1]), teaching)
        if (
            teaching is None
            or array.shape != wanted
            or array.dtype != dtype
            or len(taught) != len(TEACHER_PARTS)
        ):
            raise ValueError(
                f"[model] {name}: expected {dtype} {list(wanted)} of model.teaching, got {array.dtype} "
                f"{list(array.shape)}"
            )
    return ids, taught
