"""The pipelines of `data.pipeline` and the protocols of `eval.protocol`, for help, choices and checks.

The lists are here because config may not import the code that reads data: data/pipelines/<name>.py for pipelines and
run/build/protocols.py for protocols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

KEY = "data.pipeline"  # the field that names a pipeline below, or a user's reader


@dataclass(frozen=True)
class PipelineSpec:
    """The properties of a pipeline that settings depend on.

    protocol: the protocol of its validation, a name of PROTOCOLS. earlier_protocol: the meaning of `auto` in earlier
    versions, which runs of these versions keep. ids_alone: needs no tokenizer. shuffles: data.shuffle=auto means on.
    cursor_members: keys of a stream's position in a checkpoint; empty if data.cache=stream is not supported. by_number:
    a stream reads documents by index, in another order than the files have. endless: epochs have no end. mixes_epochs:
    its order depends on data.epochs. plain_text: also reads plain text files. conversations: records contain messages
    instead of a text. folder: selects the files of a folder that are read. leaves_out: sequences may have ignored
    targets. has_records: data.bad_records=drop skips unreadable records. mixes: data.mix may mix sources of it.
    """

    name: str
    protocol: str = "pile"
    earlier_protocol: str = ""
    ids_alone: bool = False
    shuffles: bool = False
    cursor_members: frozenset[str] = frozenset()
    by_number: bool = False
    endless: bool = False
    mixes_epochs: bool = False
    plain_text: bool = False
    needs_validation: bool = True
    conversations: bool = False
    folder: Literal["all", "tfrecord", "c4"] = "all"
    leaves_out: bool = False
    has_records: bool = True
    mixes: bool = True

    @property
    def streams(self) -> bool:
        """True if documents can be tokenized ahead of training."""
        return bool(self.cursor_members)


_ALL = (
    PipelineSpec("text", protocol="text", shuffles=True, plain_text=True),
    PipelineSpec(
        "pile",
        protocol="whole_batches",
        earlier_protocol="pile",
        ids_alone=True,
        needs_validation=False,
        folder="tfrecord",
        leaves_out=True,
        mixes=False,  # its batches belong to groups of files
    ),
    PipelineSpec("megatron", ids_alone=True, shuffles=True, mixes_epochs=True, has_records=False),
    PipelineSpec("ids", protocol="text", ids_alone=True, shuffles=True, has_records=False),
    PipelineSpec(
        "pack",
        protocol="pack",
        shuffles=True,
        cursor_members=frozenset({"batch", "places"}),
        by_number=True,
        leaves_out=True,
    ),
    PipelineSpec(
        "rows",
        protocol="rows",
        cursor_members=frozenset({"batch", "epoch", "file", "number", "held", "taken"}),
        leaves_out=True,
    ),
    PipelineSpec(
        "features", protocol="counted", earlier_protocol="features", ids_alone=True, leaves_out=True
    ),
    PipelineSpec(
        "blocks",
        protocol="blocks",
        shuffles=True,
        cursor_members=frozenset({"batch", "epoch", "draws", "read", "ended", "slots", "origin"}),
        folder="c4",
        leaves_out=True,
    ),
    PipelineSpec("chat", protocol="chat", shuffles=True, conversations=True, leaves_out=True),
    PipelineSpec("synthetic", ids_alone=True, endless=True, has_records=False, mixes=False),
)

PIPELINES = {one.name: one for one in _ALL}
_OF_USER = PipelineSpec("", has_records=False, mixes=False)


def spec_of(name: str) -> PipelineSpec:
    """Return the properties of a pipeline; for any other name, those of a user's reader."""
    return PIPELINES.get(name, _OF_USER)


def listed(specs: Iterable[PipelineSpec], last: str) -> str:
    """Return the names as a phrase: `a, b and c`. last: the conjunction before the last name."""
    names = [one.name for one in specs]
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)


@dataclass(frozen=True)
class EvalProtocol:
    """A validation protocol: the sequences that are evaluated, and the kind of mean over them.

    mean: over all targets, over batches of their means over positions, or the latter divided by the mean weight. last:
    the treatment of an incomplete batch. counts: unit of eval.documents: sequences, ends of documents inside sequences,
    or documents before they are split. validates_all: the command `validate` ignores eval.max_batches.
    """

    name: str
    mean: Literal["targets", "slots", "weights"] = "targets"
    last: Literal["padded", "dropped", "never full"] = "padded"
    counts: Literal["rows", "ends", "documents"] = "rows"
    validates_all: bool = False


WHOLE_BATCHES = "whole_batches"  # only whole batches of each group of files, as in MUDDFormer's program
_PROTOCOLS = (
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
PROTOCOLS = {one.name: one for one in _PROTOCOLS}
