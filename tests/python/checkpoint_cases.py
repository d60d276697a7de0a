"""Small checkpoints, and injected faults of their file calls, for the tests of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mudd_core import _core, checkpoint
from mudd_core.checkpoint import whole_parts

RUN = {"run_id": "run-a", "config_hash": "cafe"}


def tiny_tensors(step: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(step)
    return {
        "embed": rng.normal(size=(7, 5)).astype(np.float32),
        "blocks.0.norm.gain": rng.normal(size=5).astype(np.float32),
        "m/embed": rng.normal(size=(7, 5)).astype(np.float32),
        "counts": np.arange(3, dtype=np.int64),
        "empty": np.zeros((3, 0), np.float32),
    }


STATE = {"step": 1, "rng_seed": 7, "sums": [0.1, 1e-300, -2.5], "skips": {}}


def save(directory: Path, step: int, **changes: Any) -> Path:
    return checkpoint.save(directory, step, whole_parts(tiny_tensors(step)), STATE, **{**RUN, **changes})


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == wanted[name].dtype
        and found[name].shape == wanted[name].shape
        and found[name].tobytes() == wanted[name].tobytes()
        for name in wanted
    )


# Kept alive, because a file that was opened through it may be closed after its test.
_USED: list[_core.testing.FaultFiles] = []


@contextmanager
def faults(**settings: Any) -> Iterator[_core.testing.FaultFiles]:
    """Send all file calls through a FaultFiles with these settings, e.g. fail_at=(3, errno.EIO)."""
    files = _core.testing.FaultFiles()
    for name, value in settings.items():
        getattr(files, name)(*value)
    _USED.append(files)
    _core.testing.use_files(files)
    try:
        yield files
    finally:
        _core.testing.use_files(None)
