"""The evaluation protocol of each pipeline: which rows are validated, and what their mean is over."""

from __future__ import annotations

from mudd_core.config.schema import Config

# By pipeline, what `auto` meant in earlier versions: their runs keep it, and eval.protocol still names it.
EARLIER = {"features": "features", "pile": "pile"}
WHOLE_BATCHES = "whole_batches"  # of each group of files, as MUDDFormer's program takes them
_PROTOCOLS = {
    "text": "text",
    "pile": WHOLE_BATCHES,
    "megatron": "pile",
    "pack": "pack",
    "rows": "rows",
    "features": "counted",
    "blocks": "blocks",
    "synthetic": "pile",
}


def protocol_of(config: Config) -> str:
    """The protocol in force: what eval.protocol names, else that of data.pipeline; pile for a reader of the user's."""
    asked = config.eval.protocol
    return _PROTOCOLS.get(config.data.pipeline, "pile") if asked == "auto" else asked


def validation_batch(config: Config) -> int:
    """Return the rows of a validation batch."""
    return config.eval.batch_size or config.train.batch_size


def protocol_faults(config: Config) -> list[str]:
    """A message if eval.protocol is that of another pipeline."""
    pipeline, asked = config.data.pipeline, config.eval.protocol
    known = ["auto", _PROTOCOLS.get(pipeline, "pile"), *([EARLIER[pipeline]] if pipeline in EARLIER else [])]
    if asked in known:
        return []
    names = f"{', '.join(known[:-1])} or {known[-1]}"
    return [f"eval.protocol: expected {names}, those of data.pipeline={pipeline}, got {asked}"]
