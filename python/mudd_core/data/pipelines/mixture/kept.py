"""The file in the folder of caches that names the cache of each source of a mixture."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from mudd_core import _core
from mudd_core.base.regular_files import read_bytes


def saved_sources(root: Path, fingerprint: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return the fingerprints of the sources of a run that was started before; empty if they are unknown."""
    if fingerprint is None:
        return {}
    try:
        known = json.loads(read_bytes(_file(root, fingerprint)))["sources"]
        return {name: str(known[name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep_sources(root: Path, fingerprint: str, sources: dict[str, str]) -> None:
    """Write the fingerprints of the sources of a mixture."""
    text = json.dumps({"sources": sources}, indent=1)
    with contextlib.suppress(OSError):  # without the file, a resumed run reads the text of its sources again
        root.mkdir(parents=True, exist_ok=True)
        _core.replace_file(str(_file(root, fingerprint)), text.encode())


def _file(root: Path, fingerprint: str) -> Path:
    return root / f"mix-{fingerprint}.json"
