"""Whether the data of a run are streamed: what data.cache asks for, and what can be streamed at all."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of
from mudd_core.config.streaming import stream_faults
from mudd_core.data.documents.source import DocumentSource, TextFiles

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
    if not spec_of(config.data.pipeline).by_number:
        return []
    if texts.bad.drops:
        return [
            f"stream: data.pipeline={config.data.pipeline} reads documents by their number, which "
            "data.bad_records=drop changes; take data.cache=full"
        ]
    if fault := _order_fault(texts):
        return [
            f"stream: {fault}, and data.pipeline={config.data.pipeline} reads them in an order of its own; unpack it, "
            "convert it (launch.py data convert), or take data.cache=full"
        ]
    if asked == "auto" and config.data.shuffle != "off" and texts.reads_groups:
        return ["stream: a shuffled order would read a whole row group for each document"]
    return []


def _order_fault(texts: TextFiles) -> str:
    """Why documents of these files cannot be read by number; empty if they can."""
    if (way := texts.format.by_number) is None:
        return ""
    faults = (fault for file in texts.files if (fault := way.fault(file)))
    found = next(faults, "")
    return f"{found}, so its documents can only be read in order" if found else ""
