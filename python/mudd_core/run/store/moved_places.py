"""The places inside a tuning's folder that its saved config names, after the folder was moved or copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.config import Config
from mudd_core.config.fields import replace_path, walk
from mudd_core.run.store.run_folder import ADAPTER, BASE, RunFolder

PLACES = ("start.load_parameters_path", "data.tokenizer", "lora.start_from")


def with_own_places(config: Config, folder: RunFolder) -> Config:
    """Return the config of a run with the places inside its folder named where the folder is now."""
    for path, place in _own_places(config, folder):
        config = replace_path(config, path, str(place))
    return config


def moved_along(asked: Config, saved: Config, folder: RunFolder) -> Config:
    """Return the asked config with what it names as the saved one does, named where the folder is now."""
    before = {info.path: info.value for info in walk(saved)}
    now = {info.path: info.value for info in walk(asked)}
    for path, place in _own_places(saved, folder):
        if now[path] == before[path]:
            asked = replace_path(asked, path, str(place))
    return asked


def _own_places(config: Config, folder: RunFolder) -> Iterator[tuple[str, Path]]:
    """Fields that name a place in the folder where it was before, and that place now."""
    base, tokenizer = Path(config.start.load_parameters_path), Path(config.data.tokenizer)
    if not _has_own_base(config, folder) or base.resolve() == folder.base_folder.resolve():
        return
    start, vocabulary, adapter = PLACES
    yield start, folder.base_folder
    if tokenizer in (base, base / IMPORTED):
        yield vocabulary, folder.base_folder / tokenizer.relative_to(base)
    if Path(config.lora.start_from) == base.parent / ADAPTER:
        yield adapter, folder.adapter_folder


def _has_own_base(config: Config, folder: RunFolder) -> bool:
    """Whether the base of a tuning was imported into the folder of the run, whether it is there still or not."""
    base = config.start.load_parameters_path
    start = object_in(folder.asked_file).get("start") if Path(base).name == BASE else None
    began = start.get("load_parameters_path") if isinstance(start, dict) else None
    if not isinstance(began, str) or Path(began).name != BASE:
        return False
    typed = object_in(folder.arguments_file).get("base")
    if isinstance(typed, str) and Path(typed) == Path(began):
        return False  # another run
    return base == began or folder.base_folder.is_dir()
