"""The splits of C4/en 3.0.1 in the mixture-of-experts benchmark: train1, train2 and validation_24567exp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_TRAIN = re.compile(r"c4-train\.(\d{5})-of-01024")
# The first file, the last file and the number of documents.
PARTS = {"train1": (0, 767, 274_651_678), "train2": (768, 1023, 91_217_223)}
# The file names of the hub, of TensorFlow Datasets and of the benchmark. The Arrow files of `datasets` start alike.
_NAME = "c4-*"
VALIDATION = ("c4-validation_24567exp", 24_567)


def is_c4(folder: Path) -> bool:
    """Return whether a folder, or one of its subfolders for languages and splits, has a file of C4."""
    return any(at.is_file() for depth in ("", "*/", "*/*/") for at in folder.glob(depth + _NAME))


def train_number(path: Path) -> int | None:
    """Return the index of a training file among the 1,024 files; None for another file."""
    found = _TRAIN.search(path.name)
    return int(found[1]) if found else None


def benchmark_training(files: Sequence[Path]) -> tuple[tuple[Path, ...], str]:
    """Return (the files of train2, a line about the others); all files if there is nothing to select."""
    low, high, _ = PARTS["train2"]
    chosen = tuple(file for file in files if low <= (train_number(file) or 0) <= high)
    if not chosen or len(chosen) == len(files):
        return tuple(files), ""
    return chosen, (
        f"the benchmark trains on train2, the files {low} to {high} of C4: {len(chosen)} of the {len(files)} files of "
        f"{files[0].parent} are read; name files or a pattern in data.path to read others"
    )


def benchmark_validation(files: Sequence[Path]) -> tuple[tuple[Path, ...], str]:
    """Return (the file of the 24,567 documents, a line about the others); all files if there is nothing to select."""
    chosen = tuple(file for file in files if VALIDATION[0] in file.name)
    if not chosen or len(chosen) == len(files):
        return tuple(files), ""
    return chosen, (
        f"the benchmark validates on {VALIDATION[0]}: {len(chosen)} of the {len(files)} files of {files[0].parent} are "
        "read; name files or a pattern in data.eval_path to read others"
    )
