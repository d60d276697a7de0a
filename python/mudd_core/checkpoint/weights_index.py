"""Reads and writes model.safetensors.index.json: which file of a folder has which tensor, as Hugging Face has it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_text

NAME = "model.safetensors.index.json"


def index_text(files: Mapping[str, str], total_bytes: int) -> str:
    """Return the text of an index. files: name of the file by tensor. total_bytes: of all tensors."""
    return json.dumps({"metadata": {"total_size": total_bytes}, "weight_map": dict(files)}, indent=2) + "\n"


def indexed_files(folder: Path) -> list[Path] | None:
    """Return the files that the index of a folder names, sorted; None where the folder has no index.

    FormatError for an index that is damaged, UserError for one that names files elsewhere or missing files.
    """
    index = folder / NAME
    places = _places(index)
    if places is None:
        return None
    for name in (names := sorted(set(places.values()))):
        if not isinstance(name, str) or "/" in name or not local(name, f"{index}: file").name:
            raise UserError(f"{index}: expected names of files beside it, got {name!r}")
        if not (folder / name).is_file():
            raise UserError(f"{index} names a file '{name}' that is not in {folder}; copy the folder again")
    return [folder / name for name in names]


def require_indexed(folder: Path, found: Collection[str]) -> None:
    """FormatError for a tensor of a folder's index that no file of it has. found: the names in the files."""
    index = folder / NAME
    places = _places(index) or {}
    if absent := sorted(set(places) - set(found)):
        name = absent[0]
        raise FormatError(
            str(index),
            0,
            f"tensor '{name}' should be in '{places[name]}', which does not have it ({len(absent)} absent); "
            "copy the folder again",
        )


def _places(index: Path) -> dict[str, str] | None:
    """Name of the file by tensor; None where there is no index."""
    if not index.is_file():
        return None
    try:
        places = json.loads(read_text(index))["weight_map"]
        _ = sorted(set(places.values()))  # strings alone
        return dict(places)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(str(index), 0, f"not an index of safetensors files ({error})") from error
