"""The evaluation protocol of each pipeline: which rows are validated, and what their mean is over."""

from __future__ import annotations

from mudd_core.config.schema import Config

_PROTOCOLS = {
    "text": "text",
    "pile": "pile",
    "megatron": "pile",
    "pack": "pack",
    "rows": "rows",
    "features": "features",
    "blocks": "blocks",
    "synthetic": "pile",
}


def protocol_of(config: Config) -> str:
    """The protocol in force: that of data.pipeline; pile for a reader of the user's own."""
    return _PROTOCOLS.get(config.data.pipeline, "pile")


def protocol_faults(config: Config) -> list[str]:
    """A message if eval.protocol is that of another pipeline."""
    asked, known = config.eval.protocol, protocol_of(config)
    if asked in ("auto", known):
        return []
    return [
        f"eval.protocol: expected auto or {known}, the protocol of data.pipeline={config.data.pipeline}, got {asked}"
    ]
