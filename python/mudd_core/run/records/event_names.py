"""The names of the events in events.jsonl."""

from __future__ import annotations

from enum import StrEnum


class EventName(StrEnum):
    """What happened to a run; runs of earlier versions have neither `saved` nor `skipped`."""

    IMPORTED = "imported"
    STARTED = "started"
    RESUMED = "resumed"
    STOPPED = "stopped"
    FINISHED = "finished"
    SAVED = "saved"
    SAVE_FAILED = "save failed"
    SKIPPED = "skipped"
    REWOUND = "rewound"
    SOURCE_LOST = "source lost"
    NO_SAMPLE = "no sample"
    WARNING = "warning"
