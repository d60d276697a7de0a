"""A run that another command reads: its folder and its saved config."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.storage import is_url, mapped, mirror_folder
from mudd_core.config import (
    Config,
    apply_overrides,
    check_config,
    differences,
    find_config,
    read_config,
    split_words,
    typed_names,
)
from mudd_core.config.arguments import with_values
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.overrides import named_in
from mudd_core.run.store.config_source import of_facts
from mudd_core.run.store.own_code import as_saved, run_copies
from mudd_core.run.store.registrations import replay


def work_directory(asked: str | None, name: str, mounts: str = "") -> Path:
    """The folder asked for, else runs/<name of the config>; for a URL the folder that is mirrored there."""
    if asked is not None and is_url(asked := mapped(asked, mounts)):
        return mirror_folder(asked)
    return local(Path("runs") / name if asked is None else asked, "[arguments] --workdir")


def mounts_in(words: Sequence[str]) -> str:
    """storage.map as the arguments give it; empty where they do not."""
    given = ""
    for item, value in with_values(words):
        given = value if item.name == "storage.map" else given
    return given


def fetch_run(asked: str, path: Path, mounts: str) -> None:
    """Bring here the newest step of a run that is at a URL; a run that holds the folder has it already."""
    from mudd_core.run.store.fetch import finish_fetch
    from mudd_core.run.store.mirror import Mirror
    from mudd_core.run.store.workdir import STAGED, InUseError, Workdir

    url = mapped(asked, mounts)
    if not is_url(url) and not (path / STAGED).is_dir():
        return
    mirror = Mirror(url, path.absolute(), writes=False) if is_url(url) else None
    try:
        with Workdir(path) as held:
            finish_fetch(held.path)
            if mirror is not None:
                mirror.fetch(lambda text: print(text, file=sys.stderr))
    except InUseError:
        if not (path / "config.json").is_file():
            raise


def named_run(
    options: Mapping[str, str], words: Sequence[str], known: Sequence[str] = (), first: str = ""
) -> tuple[Config, Path]:
    """Saved config and folder of the run that --workdir names, or --config by its default folder.

    words: overrides; they may set what may change on resume, or repeat what is saved. Of the config file only the name
    counts, so a run that was trained with overrides is read by the same --config. known, first: as for split_words.
    """
    file, workdir = options.get("--config"), options.get("--workdir")
    if workdir is None:
        if file is None:
            raise UserError("[arguments] give --config=FILE or --workdir=DIR to say which run")
        config = read_config(file)
        names = [item for item in split_words(words, config, known, first) if item.path == "name"]
        path = work_directory(None, apply_overrides(config, names).name)
    else:
        config = Config()
        if file is not None:
            find_config(file)  # it is not needed, but a wrong name is a mistake
        path = work_directory(workdir, "", mounts_in(words))
        fetch_run(workdir, path, mounts_in(words))
        if file is not None:
            _registered_by(find_config(file), path)
    if not named_in(words, FAMILY):
        run_copies(path)
    return _saved_with(path, words, config, known, first), path


def _registered_by(file: Path, path: Path) -> None:
    """Run the config file that the command names, where the run at `path` was started by it and needs it."""
    from mudd_core.run.store.json_files import read_facts

    source = of_facts(read_facts(path)) if (path / "run.json").is_file() else None
    if source is not None and source.file == str(file.resolve()):
        replay(file, source.registers)


def _saved_with(
    path: Path, words: Sequence[str], fallback: Config, known: Sequence[str], first: str
) -> Config:
    """The saved config with the words applied. fallback: names the valid fields where there is no run."""
    from mudd_core.run.store.json_files import read_facts, read_saved_config

    if not (path / "config.json").is_file():
        split_words(words, fallback, known)  # a misspelt option may be why there is none
    saved = read_saved_config(path)
    overrides = split_words(words, saved, known, first)
    asked = apply_overrides(saved, overrides)
    if named_in(words, FAMILY):
        asked = as_saved(asked, path, read_facts(path))
        saved = read_saved_config(path)  # with the code that is known now
    check_config(asked, typed_names(overrides))
    fixed = [change for change in differences(saved, asked) if not change.free_on_resume]
    if fixed:
        lines = "\n".join(f"  {change}" for change in fixed)
        raise UserError(
            f"[arguments] {path} was trained with other values:\n{lines}\n"
            "A command that reads a run keeps them; leave these arguments out."
        )
    return asked
