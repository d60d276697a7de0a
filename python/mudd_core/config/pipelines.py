"""The list of the pipelines of `data.pipeline`, with the facts that help, choices and checks of settings need.

The list is here because config may not import what reads data. data/pipelines/<name>.py holds the code of a pipeline;
the registry there imports the modules by these names. What data.cache=stream needs of the other fields is here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mudd_core.config.schema import Sections

KEY = "data.pipeline"  # names one of these, or a reader of the user's


@dataclass(frozen=True)
class PipelineSpec:
    """One pipeline, as settings see it.

    protocol: of its validation, a name of config.protocols. earlier_protocol: what `auto` meant in earlier versions;
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


def stream_faults(config: Sections) -> list[str]:
    """Why the data of a config cannot be streamed, each with the way out."""
    data, faults = config.data, []
    if not spec_of(data.pipeline).streams:
        streamed = listed((one for one in PIPELINES.values() if one.streams), "or")
        faults.append(f"stream: expected data.pipeline={streamed}, got {data.pipeline}; take data.cache=full")
    if data.tokenizer == "bpe":
        faults.append(
            "stream: expected a tokenizer that is there, got data.tokenizer=bpe, which is trained on all the text "
            "first; name one, or take data.cache=full"
        )
    if config.train.epochs:
        faults.append(
            "stream: expected train.steps, got train.epochs, whose steps only the whole text tells; set train.steps, "
            "or take data.cache=full"
        )
    return faults


def asked_stream_faults(config: Sections) -> list[str]:
    """The same where the config asks for a stream."""
    return [f"data.cache={fault}" for fault in stream_faults(config)] if config.data.cache == "stream" else []
