"""A storage of gs:// URLs in memory."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem


class Bucket(MemoryFileSystem):
    """An in-memory file system for gs:// URLs."""

    protocol = "gs"
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("gs://", "memory://")))


def open_bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty bucket for gs:// URLs, until the test ends."""
    monkeypatch.setitem(sys.modules, "gcsfs", types.ModuleType("gcsfs"))
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "gs", Bucket)  # type: ignore[attr-defined]
    monkeypatch.setattr(Bucket, "store", {})
    monkeypatch.setattr(Bucket, "pseudo_dirs", [""])
    return Bucket()
