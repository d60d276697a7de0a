"""The pipelines of `data.pipeline` and the protocols of `eval.protocol`, as help, choices and checks need them.

The lists are here because config may not import the code that reads data. data/pipelines/<name>.py has the code of a
pipeline, and run/build/protocols.py that of the protocols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

KEY = "data.pipeline"  # names one of these, or a reader of the user's


@dataclass(frozen=True)
class PipelineSpec:
    """One pipeline, as settings see it.

    protocol: of its validation, a name of PROTOCOLS. earlier_protocol: what `auto` meant in earlier versions;
    their runs keep it. ids_alone: needs no tokenizer. shuffles: with data.shuffle=auto. cursor_members: of the place of
    a stream in a checkpoint; empty where data.cache=stream is not supported. by_number: a stream reads documents in its
    own order. endless: has no end of an epoch. mixes_epochs: its order depends on data.epochs. plain_text: reads plain
    files of text in one place too. conversations: records hold messages, not a text. folder: which files of a folder
    are taken. leaves_out: rows may have targets that do not count. has_records: data.bad_records=drop leaves out those
    that cannot be read.
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

    @property
    def streams(self) -> bool:
        """Whether documents can be tokenized ahead of the training."""
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
    PipelineSpec("synthetic", ids_alone=True, endless=True, has_records=False),
)

PIPELINES = {one.name: one for one in _ALL}
_OF_USER = PipelineSpec("", has_records=False)


def spec_of(name: str) -> PipelineSpec:
    """Return the facts of a pipeline, and of a reader of the user's for any other name."""
    return PIPELINES.get(name, _OF_USER)


def listed(specs: Iterable[PipelineSpec], last: str) -> str:
    """Return the names in a sentence: `a, b and c`. last: the word before the last name."""
    names = [one.name for one in specs]
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)


@dataclass(frozen=True)
class EvalProtocol:
    """A protocol: which rows are validated, and what their mean is over.

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
