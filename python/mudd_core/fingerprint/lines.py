"""The lines of a record: a value of a training step with its place, its digest and some elements; and the header."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

# The stages of a step, in order (cpp/mudd/graph/node_observer.h).
STAGES = ("state", "data", "forward", "recompute", "backward", "sum", "step", "update")
COMPUTED = ("forward", "recompute", "backward", "sum", "update")  # stages in which an op computes
WHOLE_STEP = ("state", "step", "update")  # stages that do not depend on the split into micro-batches
FORMAT = 2  # of records; 1 had an object with all names for each line
DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "uint8")


class Key(NamedTuple):
    """The place of a value in a step, equal for the same value of two steps.

    run: the graph run (micro-batch). place: the label of a node, such as "blocks.0.attn:attention", or the name of a
    weight. value: "output 0", "gradient of input 1", "gradient of embed", "first moment".
    """

    rank: int
    run: int
    stage: str
    place: str
    value: str


def op_of(place: str) -> str:
    """Return the op at the end of a label, such as "attention" of "blocks.0.attn:attention#2"; empty for a weight."""
    return place.rpartition(":")[2].split("#")[0] if ":" in place else ""


@dataclass(frozen=True)
class Line:
    """A value of a step.

    begin: index of element 0 in the whole, for a part of it. first_row: sample of the first row. samples: some
    elements at equal distances. rows: for the stage "data", a digest of each sequence.
    """

    key: Key
    op: str
    shape: tuple[int, ...]
    dtype: str
    digest: str
    samples: tuple[float, ...]
    begin: int = 0
    first_row: int = 0
    rows: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place without the op, such as "blocks.0.attn"."""
        place, _, op = self.key.place.rpartition(":")
        return place if op.split("#")[0] == self.op else self.key.place

    def same_form(self, other: Line) -> bool:
        """Return whether both have the same elements of one type, so that their digests can be compared."""
        return (self.shape, self.dtype, self.begin) == (other.shape, other.dtype, other.begin)

    def title(self) -> str:
        """Return what computed the value, such as "attention (forward) in blocks.0.attn"."""
        stage = self.key.stage
        if stage == "step":
            return f"the {self.key.value} of the step"
        if stage == "data":
            return f"the data: {self.key.value} of the batch"
        if stage == "state":
            return f"the {self.key.value} of {self.key.place} before the step"
        if stage == "sum":
            return f"{self.op}: {self.key.value} of {self.key.place}"
        if stage == "update":
            return f"{self.op} (update): {self.key.value} of {self.key.place}"
        place = f" in {self.place}" if self.place else ""
        run = f", micro-batch {self.key.run + 1}" if self.key.run else ""
        rank = f", rank {self.key.rank}" if self.key.rank else ""
        return f"{self.op} ({stage}){place}: {self.key.value}{run}{rank}"

    def form(self) -> str:
        """Return the type and shape, such as "float32 [2, 8, 64]"."""
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Header:
    """The step that was recorded.

    step: the update, from 1. package: the version of mudd_core. isa: the instruction set level. world: ranks. loss,
    grad_norm: of the step. code_hash: of the user's files, empty without them.
    """

    step: int
    family: str = ""
    config_hash: str = ""
    data_hash: str = ""
    code_hash: str = ""
    isa: str = ""
    precision: str = "fp32"
    world: int = 1
    package: str = ""
    loss: float = math.nan
    grad_norm: float = math.nan
    format: int = FORMAT
