"""The config of a resumed run: the saved one with requested free fields, more steps, later phases, new paths and bound
values.

Steps are added in place if the schedule allows it; otherwise a new run starts from the weights.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, Difference, OtherConfigError, differences, merge_for_resume
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.mix import PHASES, parse_phases
from mudd_core.config.pipelines import spec_of
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.store.run_folder import ADAPTER, BASE, RunFolder


def may_extend(saved: Config, steps: int, done: int) -> bool:
    """Return True if a run of `steps` updates has the saved run's learning rates in the first `done` updates.

    With train.epochs, return False, because train.steps has no effect.
    """
    if saved.train.epochs:
        return False
    longer = replace_path(saved, "train.steps", steps)
    return all(learning_rate(saved, t) == learning_rate(longer, t) for t in range(done))


def extended(saved: Config, asked: Config, done: int) -> Config:
    """Return the saved config with the steps of train.extend; raise OtherConfigError if its schedule forbids them."""
    steps = asked.train.steps
    if not asked.train.extend or steps <= saved.train.steps:
        return saved
    if not may_extend(saved, steps, done):
        if saved.train.epochs:
            why = f"train.extend: expected train.epochs=0, because train.epochs={saved.train.epochs} sets the steps"
            raise OtherConfigError([Difference("train.steps", saved.train.steps, steps, False)], why)
        fixed = [change for change in differences(saved, asked) if not change.free_on_resume]
        raise OtherConfigError(
            fixed,
            f"train.extend: expected a schedule whose rates of the first {done} updates do not depend on train.steps "
            f"(constant, or wsd before its decay), got {saved.optim.schedule} with {saved.train.steps} steps",
        )
    longer: Config = replace_path(saved, "train.steps", steps)
    return longer


def with_more_epochs(saved: Config, asked: Config) -> Config:
    """Return the saved config with the requested data.epochs, if the run ends with its data and the value is larger.

    The learning rates do not depend on data.epochs, so no schedule is checked.
    """
    epochs = asked.data.epochs
    if not (saved.train.to_data_end and epochs > saved.data.epochs > 0):
        return saved
    if spec_of(saved.data.pipeline).mixes_epochs:
        return saved
    longer: Config = replace_path(saved, "data.epochs", epochs)
    return longer


def with_later_phases(saved: Config, asked: Config, done: int) -> Config:
    """Return the saved config with the requested data.mix_phases, if only phases after the `done` updates differ.

    Raise OtherConfigError if an earlier one differs.
    """
    if saved.data.mix_phases == asked.data.mix_phases:
        return saved
    before, now = (
        [phase for phase in parse_phases(one.data.mix_phases) if phase.step < done] for one in (saved, asked)
    )
    if before != now:
        change = Difference(PHASES, saved.data.mix_phases, asked.data.mix_phases, False)
        raise OtherConfigError(
            [change], f"{PHASES}: expected the same phases before step {done}, the saved step"
        )
    later: Config = replace_path(saved, PHASES, asked.data.mix_phases)
    return later


PLACES = ("start.load_parameters_path", "data.tokenizer", "lora.start_from")


def with_own_places(config: Config, folder: RunFolder) -> Config:
    """Return the config of a run with paths inside its folder updated to the current place of the folder."""
    for path, place in _own_places(config, folder):
        config = replace_path(config, path, str(place))
    return config


def moved_along(asked: Config, saved: Config, folder: RunFolder) -> Config:
    """Return the requested config, with the saved config's paths updated to the current place of the folder."""
    before = {info.path: info.value for info in walk(saved)}
    now = {info.path: info.value for info in walk(asked)}
    for path, place in _own_places(saved, folder):
        if now[path] == before[path]:
            asked = replace_path(asked, path, str(place))
    return asked


def _own_places(config: Config, folder: RunFolder) -> Iterator[tuple[str, Path]]:
    """Yield the fields with a path in the folder's earlier place, each with its current path."""
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
    """Return True if the base was imported into the folder of the run, even if the base is now missing."""
    base = config.start.load_parameters_path
    start = object_in(folder.asked_file).get("start") if Path(base).name == BASE else None
    began = start.get("load_parameters_path") if isinstance(start, dict) else None
    if not isinstance(began, str) or Path(began).name != BASE:
        return False
    typed = object_in(folder.arguments_file).get("base")
    if isinstance(typed, str) and Path(typed) == Path(began):
        return False  # the path names another run
    return base == began or folder.base_folder.is_dir()


MEMBER = "bound_fields"  # key in run.json; runs of earlier versions do not have it


def bound_facts(config: Config) -> JsonObject:
    """Return the facts for run.json about the fields that a new run's config binds."""
    return {MEMBER: list(config.bound_fields)} if config.bound_fields else {}


def with_earlier_values(asked: Config, saved: Config, facts: Mapping[str, Json]) -> Config:
    """Return the requested config and a note; runs of earlier versions get the saved values of bound fields.

    Earlier versions allowed a resume to change these fields, so the command of such a run may not name the saved value.
    facts: the content of run.json.
    """
    if MEMBER in facts or not saved.bound_fields:
        return asked
    for change in differences(saved, asked):
        if change.path in saved.bound_fields and change.saved is not None:
            print(
                f"note: {change.path} stays {change.saved}: with loss.normalize={saved.loss.normalize} it is part of "
                f"the training; to use {change.asked}, start a new run with another --workdir",
                file=sys.stderr,
            )
            asked = replace_path(asked, change.path, change.saved)
    return asked


TRAINED = "bpe"  # the value of data.tokenizer for a vocabulary that is trained on the text


def with_saved_free_fields(asked: Config, saved: Config, typed: Collection[str]) -> Config:
    """Return the requested config with the saved values of fields that may change on resume and were not typed."""
    for change in differences(saved, asked):
        if change.free_on_resume and change.path not in typed and change.saved is not None:
            asked = replace_path(asked, change.path, change.saved)
    return asked


def resumed_config(saved: Config, asked: Config, done: int) -> tuple[Config, list[Difference]]:
    """Return the saved config with the requested free fields, and the changed fields. done: updates so far.

    Raise UserError with the list of fields that must not differ.
    """
    asked = with_saved_tokenizer(saved, asked)
    # train.epochs was resolved at the first start. A config that newly extends the run is refused instead.
    extends = asked.train.extend and not saved.train.extend
    if not extends and asked.train.epochs and asked.train.epochs == saved.train.epochs:
        asked = replace_path(asked, "train.steps", saved.train.steps)
    # the hash of the base is compared, not its path
    if saved.tune.method == "lora" and asked.start.load_parameters_path:
        path = asked.start.load_parameters_path
        saved = replace_path(saved, "start.load_parameters_path", path)
    longer = with_more_epochs(extended(saved, asked, done), asked)
    if saved.data.mix == asked.data.mix:
        longer = with_later_phases(longer, asked, done)
    config, changed = merge_for_resume(longer, asked)
    return config, changed if longer is saved else [*differences(saved, longer), *changed]


def with_saved_tokenizer(saved: Config, asked: Config) -> Config:
    """Return the requested config with the tokenizer that the first start of the run took from its source."""
    if asked.data.tokenizer != TRAINED or not saved.start.load_parameters_path:
        return asked
    result: Config = replace_path(asked, "data.tokenizer", saved.data.tokenizer)
    return result
