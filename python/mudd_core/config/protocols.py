"""The evaluation protocols of `eval.protocol`: which rows are validated, and what their mean is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mudd_core.config.pipelines import spec_of

if TYPE_CHECKING:
    from mudd_core.config.schema import Sections


@dataclass(frozen=True)
class EvalProtocol:
    """One protocol.

    mean: over all targets, of batches over their slots, or the same with the mean of weights below it. last: what a
    batch is that the rows do not fill. counts: what eval.documents counts: rows, ends of documents inside rows, or
    documents before they are cut. validates_all: the command `validate` ignores eval.max_batches.
    """

    name: str
    mean: Literal["targets", "slots", "weights"] = "targets"
    last: Literal["padded", "dropped", "never full"] = "padded"
    counts: Literal["rows", "ends", "documents"] = "rows"
    validates_all: bool = False


WHOLE_BATCHES = "whole_batches"  # of each group of files, as MUDDFormer's program takes them
_ALL = (
    EvalProtocol("text", counts="ends"),
    EvalProtocol(WHOLE_BATCHES),
    EvalProtocol("pile"),
    EvalProtocol("pack", last="never full"),
    EvalProtocol("rows", mean="weights", validates_all=True),
    EvalProtocol("counted"),
    EvalProtocol("features", mean="slots", last="dropped"),
    EvalProtocol("blocks", counts="documents"),
    EvalProtocol("chat"),
)
PROTOCOLS = {one.name: one for one in _ALL}


def protocol_of(config: Sections) -> str:
    """The protocol in force: what eval.protocol names, else that of data.pipeline."""
    asked = config.eval.protocol
    return spec_of(config.data.pipeline).protocol if asked == "auto" else asked


def validation_batch(config: Sections) -> int:
    """Return the rows of a validation batch."""
    return config.eval.batch_size or config.train.batch_size


def protocol_faults(config: Sections) -> list[str]:
    """A message if eval.protocol is that of another pipeline."""
    pipeline, asked = config.data.pipeline, config.eval.protocol
    spec = spec_of(pipeline)
    known = [name for name in ("auto", spec.protocol, spec.earlier_protocol) if name]
    if asked in known:
        return []
    names = f"{', '.join(known[:-1])} or {known[-1]}"
    return [f"eval.protocol: expected {names}, those of data.pipeline={pipeline}, got {asked}"]
