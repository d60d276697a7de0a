"""The config of a resumed run: the saved one with requested free fields, moved places and bound values."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, Difference, differences, merge_for_resume
from mudd_core.config.fields import replace_path, walk
from mudd_core.run.store.extension import extended, with_more_epochs
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


MEMBER = "bound_fields"  # in run.json; absent in runs of earlier versions


def bound_facts(config: Config) -> JsonObject:
    """Return what run.json of a new run says of the fields that its config binds."""
    return {MEMBER: list(config.bound_fields)} if config.bound_fields else {}


def with_earlier_values(asked: Config, saved: Config, facts: Mapping[str, Json]) -> Config:
    """Return the asked config; of a run of an earlier version, with the saved values of bound fields and a note.

    Earlier versions let a resume change them, so the command of such a run need not name the saved value.
    facts: run.json.
    """
    if MEMBER in facts or not saved.bound_fields:
        return asked
    for change in differences(saved, asked):
        if change.path in saved.bound_fields and change.saved is not None:
            print(
                f"note: {change.path} stays {change.saved}: with loss.normalize={saved.loss.normalize} it is part of "
                f"the training; for {change.asked} start a new run with another --workdir",
                file=sys.stderr,
            )
            asked = replace_path(asked, change.path, change.saved)
    return asked


TRAINED = "bpe"  # data.tokenizer that names no vocabulary: it is trained on the text


def resumed_config(saved: Config, asked: Config, done: int) -> tuple[Config, list[Difference]]:
    """Return the saved config with the asked free fields, and what they change. done: updates of the run so far.

    Raises UserError with the list of fields that must not differ.
    """
    asked = with_saved_tokenizer(saved, asked)
    if asked.train.epochs and asked.train.epochs == saved.train.epochs:  # resolved at the first start
        asked = replace_path(asked, "train.steps", saved.train.steps)
    if (
        saved.tune.method == "lora" and asked.start.load_parameters_path
    ):  # its hash is compared, not its place
        path = asked.start.load_parameters_path
        saved = replace_path(saved, "start.load_parameters_path", path)
    longer = with_more_epochs(extended(saved, asked, done), asked)
    config, changed = merge_for_resume(longer, asked)
    return config, changed if longer is saved else [*differences(saved, longer), *changed]


def with_saved_tokenizer(saved: Config, asked: Config) -> Config:
    """Return the asked config with the tokenizer that the first start of the run took from its source."""
    if asked.data.tokenizer != TRAINED or not saved.start.load_parameters_path:
        return asked
    result: Config = replace_path(asked, "data.tokenizer", saved.data.tokenizer)
    return result
