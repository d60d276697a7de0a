"""What data.cache=stream needs of the other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core.config.pipelines import PIPELINES, listed, spec_of

if TYPE_CHECKING:
    from mudd_core.config.schema import Config


def stream_faults(config: Config) -> list[str]:
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


def asked_stream_faults(config: Config) -> list[str]:
    """The same where the config asks for a stream."""
    return [f"data.cache={fault}" for fault in stream_faults(config)] if config.data.cache == "stream" else []
