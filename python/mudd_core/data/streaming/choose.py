"""Whether the data of a run are streamed: what data.cache asks for, and what can be streamed at all."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.streaming import stream_faults
from mudd_core.data.pipelines.documents import DocumentSource, TextFiles
from mudd_core.data.streaming import by_number

AUTO_BYTES = 2 << 30  # of source files, above which data.cache=auto streams


def is_streamed(config: Config, source: DocumentSource) -> bool:
    """Whether to stream; UserError where data.cache=stream is asked for and the files do not allow it."""
    asked = config.data.cache
    if asked == "full":
        return False
    faults = [*stream_faults(config), *_file_faults(config, source, asked)]
    if asked == "stream":
        if faults:
            raise UserError("\n".join(f"[data.cache] {fault}" for fault in faults))
        return True
    return not faults and source.bytes() > AUTO_BYTES


def _file_faults(config: Config, source: DocumentSource, asked: str) -> list[str]:
    texts = source.train
    if not isinstance(texts, TextFiles):
        return ["stream: expected files of documents, got a reader; take data.cache=full"]
    if config.data.pipeline != "pack":
        return []
    fault = by_number.fault(texts)
    if fault:
        return [
            f"stream: {fault}, and data.pipeline=pack reads them in an order of its own; unpack it, convert it "
            "(launch.py data convert), or take data.cache=full"
        ]
    if asked == "auto" and config.data.shuffle != "off" and texts.named in ("parquet", "arrow"):
        return ["stream: a shuffled order would read a whole row group for each document"]
    return []
