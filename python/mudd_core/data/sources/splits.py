"""Find the training files, the validation files, and their common format.

Names of files and folders decide the split as on the Hugging Face Hub (the rule is in data_files.py of `datasets`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.config.data import DataConfig
from mudd_core.config.pipelines import spec_of
from mudd_core.data.formats import Format, only
from mudd_core.data.formats.packed import lacks_checksum
from mudd_core.data.sources import c4
from mudd_core.data.sources.listing import data_files
from mudd_core.data.sources.selection import Selection, folders_in, selected, shown

TAKES_ALL = "data.split=all selects all of them"

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


@dataclass(frozen=True)
class Sources:
    """The files in order. valid: empty if the pipeline holds out sequences. warnings, notes: lines for the user."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    format: Format
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return notes and warnings for the lines of a start."""
        told = [("files", note) for note in self.notes] + [("warning", text) for text in self.warnings]
        return [f"{name:<11} {text}" for name, text in told]

    def digest(self) -> str:
        """Return SHA-256 over name, size and times of every file, so that a changed source of a cache is noticed."""
        h = hashlib.sha256()
        for files in (self.train, self.valid):
            for path in files:
                s = path.stat()
                h.update(os.fsencode(path) + f"\0{s.st_size},{s.st_mtime_ns},{s.st_ctime_ns}\0".encode())
            h.update(b"\1")
        return h.hexdigest()


def sources_of(settings: DataConfig, *, resumed: bool = False) -> Sources:
    """Return the files of `data.path`, `data.eval_path` and `data.eval_match`; raise UserError if one has none.

    If the names of a folder's record files contain splits, the split data.split is for training. The folder's
    validation split is for validation, unless the config names another. resumed: accept a file that is named twice, as
    earlier versions did.
    """
    if not settings.path:
        raise UserError(f"[data.path] expected the files of data.pipeline={settings.pipeline}, got none")
    spec = spec_of(settings.pipeline)
    chosen = chosen_files(settings, "path", repeats=resumed)
    splits = _Splits(())
    train, notes = chosen.files, list(chosen.notes)
    valid: tuple[Path, ...] = ()
    warnings: list[str] = []
    if chosen.records and spec.folder == "all":
        splits = _by_split(settings, train)
        train, valid = splits.train, splits.valid
    if spec.folder == "tfrecord" and _is_folder(settings.path):
        train, warnings = _of_pile(settings, train)
    if settings.eval_match:
        valid = tuple(path for path in chosen.files if settings.eval_match in str(path))
        train = tuple(path for path in train if settings.eval_match not in str(path))
        if not train:
            raise UserError(
                f"[data.eval_match] {settings.eval_match!r} leaves no files for training: every path "
                f"contains it, for example {valid[0]}; set a string that only the paths of "
                "validation files have"
            )
        if not valid and not settings.eval_path and spec.needs_validation:
            raise UserError(f"[data.eval_match] {settings.eval_match!r} leaves no files for validation")
    if settings.eval_path:
        validates = chosen_files(settings, "eval_path", repeats=resumed)
        valid = validates.files
        notes += validates.notes
    notes += _note_of(splits, settings, valid)
    if spec.folder == "c4":
        train, valid, warnings = _of_benchmark(settings, train, valid)
    both = sorted({path.resolve() for path in train} & {path.resolve() for path in valid})
    one = only((*train, *valid), settings.format)
    if both:
        warnings.append(
            f"{len(both)} of the validation files are also used for training, {both[0]} first; set "
            "data.eval_match=STRING to exclude files from the training"
        )
    unchecked = [path for path in (*train, *valid) if one.name == "jsonl" and lacks_checksum(path)]
    if unchecked:
        more = f" and {len(unchecked) - 1} more files have" if len(unchecked) > 1 else " has"
        warnings.append(
            f"{unchecked[0]}{more} no checksum, so damage in the text can go unnoticed; zstd --check writes one"
        )
    return Sources(train, valid, one, tuple(warnings), tuple(notes))


def chosen_files(
    settings: DataConfig, name: Literal["path", "eval_path"], path: str = "", *, repeats: bool = False
) -> Selection:
    """Return the data among the files of data.path or data.eval_path. path: the local path if the field is a URL."""
    spec, path, argument = spec_of(settings.pipeline), path or getattr(settings, name), f"data.{name}"
    # In a folder the original program reads the files with .tfrecord in their names.
    if spec.folder == "tfrecord":
        return Selection(data_files(path, argument, repeats=repeats), True)
    return selected(
        path,
        argument,
        column="" if spec.conversations else settings.column,
        named=settings.format,
        ids=spec.ids_alone,
        repeats=repeats,
    )


@dataclass(frozen=True)
class _Splits:
    """The files of data.split and of the validation split, and all others.

    named: True if a folder has names of splits.
    """

    train: tuple[Path, ...]
    valid: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    named: bool = False


def _by_split(settings: DataConfig, files: tuple[Path, ...]) -> _Splits:
    """Return the splits of the files in each folder that data.path names; other files are for training.

    All files of a folder are for training if it has no train split, or with data.split=all. Raise UserError for a split
    that does not exist.
    """
    train, valid, named = list(files), list[Path](), False
    for root in folders_in(settings.path) if settings.split != "all" else []:
        inside = [file for file in train if file.is_relative_to(root)]
        splits = splits_of(root, inside)
        if settings.split not in splits:
            if not any(split.startswith("train") for split in splits):
                continue
            raise UserError(
                f"[data.split] expected a split of {str(root)!r} ({', '.join(sorted(splits))}), or all, got "
                f"{settings.split!r}"
            )
        named = True
        dropped = set(inside).difference(splits[settings.split])
        train = [file for file in train if file not in dropped]
        valid += splits.get("validation", ())
    kept = () if settings.split == "validation" or settings.eval_path or settings.eval_match else tuple(valid)
    taken = {*train, *kept}
    left = tuple(file for file in files if file not in taken)
    return _Splits(tuple(train), kept, left, named)


def _note_of(splits: _Splits, settings: DataConfig, valid: tuple[Path, ...]) -> list[str]:
    """Return the line about the splits; nothing if none was chosen. valid: the files for validation."""
    validating = set(valid)
    left = [file for file in splits.left if file not in validating]
    if not splits.named or not (left or splits.valid):
        return []
    parts = [f"{settings.split}: {len(splits.train):,} files for training"]
    if splits.valid:
        parts.append(f"validation: {len(splits.valid):,} files for validation")
    if left:
        parts.append(f"left out: {shown(left, folders_in(settings.path))}")
    return [f"splits by file name: {'; '.join(parts)} ({TAKES_ALL})"]


def _of_pile(settings: DataConfig, files: tuple[Path, ...]) -> tuple[tuple[Path, ...], list[str]]:
    """Return a folder's files with .tfrecord in their name, if there are any, and a line about the others."""
    root = Path(settings.path).expanduser().absolute()
    named = [".tfrecord" in path.relative_to(root).as_posix() for path in files]
    left = [path for path, taken in zip(files, named, strict=True) if not taken]
    if not any(named) or not left:
        return files, []
    line = f"{len(left)} files without .tfrecord in their name are left out, {left[0]} first"
    return tuple(path for path, taken in zip(files, named, strict=True) if taken), [line]


def _of_benchmark(
    settings: DataConfig, train: tuple[Path, ...], valid: tuple[Path, ...]
) -> tuple[tuple[Path, ...], tuple[Path, ...], list[str]]:
    """Return the files of C4 that the benchmark uses from a folder, and lines about the others."""
    lines = []
    if _is_folder(settings.path):
        train, line = c4.benchmark_training(train)
        lines += [line] if line else []
    if _is_folder(settings.eval_path):
        valid, line = c4.benchmark_validation(valid)
        lines += [line] if line else []
    return train, valid, lines


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).expanduser().is_dir()


def splits_of(root: Path, files: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Return the files of each split by the names below `root`; empty if no name has one.

    The first of these rules that matches any file applies to all files: data/SPLIT-00000-of-00001.*, names of folders,
    names of files. A file may be in several splits or in none.
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
