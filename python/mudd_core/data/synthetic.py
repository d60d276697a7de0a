"""Small generated documents, so that tests need no download. Equal arguments give equal text on any machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

_NAMES = (
    "river",
    "stone",
    "lamp",
    "bird",
    "glass",
    "road",
    "field",
    "cloud",
    "wheel",
    "grain",
    "tower",
    "boat",
)
_VERBS = ("holds", "finds", "turns", "meets", "leaves", "carries", "follows", "hides")
_LINKS = ("and", "while", "because", "until")


class _Draws:
    """A generator of integers from SHA-256 of a counter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, n: int) -> int:
        digest = hashlib.sha256(f"{self._seed}:{self._count}".encode()).digest()
        self._count += 1
        return int.from_bytes(digest[:8], "big") % n


def text(n_bytes: int, seed: int = 0) -> str:
    """Return at least `n_bytes` bytes of plain sentences in paragraphs. They are learnable, but do not repeat."""
    draws = _Draws(seed)
    lines: list[str] = []
    size = 0
    while size < n_bytes:
        words = [_clause(draws)]
        while draws.below(3) == 0:
            words += [_LINKS[draws.below(len(_LINKS))], _clause(draws)]
        line = " ".join(words) + (".\n\n" if draws.below(5) == 0 else ".\n")
        lines.append(line)
        size += len(line)
    return "".join(lines)


def _clause(draws: _Draws) -> str:
    first, second = draws.below(len(_NAMES)), draws.below(len(_NAMES))
    return f"the {_NAMES[first]} {_VERBS[draws.below(len(_VERBS))]} the {_NAMES[second]}"


def write_folder(folder: Path, n_documents: int, bytes_each: int, seed: int = 0) -> Path:
    """Write `n_documents` text files of about `bytes_each` bytes each to a folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n_documents):
        (folder / f"part-{i:04d}.txt").write_text(text(bytes_each, seed * 1_000_003 + i), encoding="utf-8")
    return folder
