"""Splits by the names of files and folders, as on the Hugging Face hub (data_files.py of `datasets` has the rule)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"data/([^/]+)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_BREAK = r"[-._ 0-9]"
_FOLDERS = {
    split: re.compile(rf"(^|{_BREAK})({'|'.join(words)})($|{_BREAK})") for split, words in KEYWORDS.items()
}
_FILES = {split: re.compile(rf"(^|{_BREAK})({'|'.join(words)}){_BREAK}") for split, words in KEYWORDS.items()}


def splits_of(root: Path, files: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Return the files of each split that names below `root` give; empty if no name gives one.

    The first of these that fits any file decides for all: data/SPLIT-00000-of-00001.*, names of folders, names of
    files. A file may be in several splits or in none.
    """
    names = {file: file.relative_to(root).as_posix() for file in files}
    sharded: dict[str, list[Path]] = {}
    for file, name in names.items():
        if (found := _SHARD.fullmatch(name)) is not None:
            sharded.setdefault(found[1], []).append(file)
    if sharded:
        return {split: tuple(some) for split, some in sharded.items()}
    by_folder = {
        split: tuple(file for file, name in names.items() if any(map(rule.search, name.split("/")[:-1])))
        for split, rule in _FOLDERS.items()
    }
    by_file = {
        split: tuple(file for file, name in names.items() if rule.search(name.rpartition("/")[2]))
        for split, rule in _FILES.items()
    }
    for found_splits in (by_folder, by_file):
        if any(found_splits.values()):
            return {split: some for split, some in found_splits.items() if some}
    return {}
