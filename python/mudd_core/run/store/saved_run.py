"""The folder and the saved config of a run that another command reads."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.config import (
    Config,
    apply_overrides,
    differences,
    find_config,
    read_config,
    split_words,
    typed_names,
)
from mudd_core.config.arguments import with_values
from mudd_core.config.overrides import named_in
from mudd_core.run.store.config_source import of_facts, replay
from mudd_core.run.store.own_code import ALL, COPIES, MODEL, TRUST, as_saved, check_saved, run_copies
from mudd_core.run.store.resumed_config import with_earlier_values
from mudd_core.run.store.run_folder import RunFolder


def mounts_in(words: Sequence[str]) -> str:
    """Return storage.map from the arguments; empty if they do not set it."""
    given = ""
    for item, value in with_values(words):
        given = value if item.name == "storage.map" else given
    return given


def run_and_step(workdir: str) -> tuple[str, int | None]:
    """Return the folder or URL of the run, and the step if the path is a checkpoint; else None."""
    if is_url(workdir):
        _, step = RunFolder.holding(Path(*Path(workdir).parts[-2:]))
        return (workdir, None) if step is None else (workdir.rstrip("/").rsplit("/", 2)[0], step)
    folder, step = RunFolder.holding(Path(workdir))
    return (workdir, None) if folder.path == Path(workdir) else (str(folder), step)


def is_run(word: str) -> bool:
    """Return True if an argument is the folder of a run or of one of its checkpoints."""
    return not is_url(word) and RunFolder(Path(run_and_step(word)[0])).holds_run


def newest_run() -> RunFolder | None:
    """Return the run below runs/ with the newest log; None if there is none."""
    return next((run for run in RunFolder(Path("runs") / "*").measured_beside() if run.holds_run), None)


def fetch_run(folder: RunFolder, at_step: int | None = None) -> None:
    """Download the newest steps of a run at a URL. If another run has locked the folder, they are already there.

    at_step: also download the newest step up to this one.
    """
    from mudd_core.run.store.fetch import finish_fetch
    from mudd_core.run.store.folder_lock import FolderLock, InUseError
    from mudd_core.run.store.mirror import Mirror

    if not folder.url and not folder.has_staged:
        return
    mirror = Mirror(folder, writes=False) if folder.url else None
    try:
        with FolderLock(folder) as lock:
            finish_fetch(lock.folder)
            if mirror is not None:
                mirror.fetch(lambda text: print(text, file=sys.stderr), at_step)
    except InUseError:
        if not folder.holds_run:
            raise


def named_run(
    options: Mapping[str, str],
    words: Sequence[str],
    known: Sequence[str] = (),
    first: str = "",
    needs: Collection[str] = MODEL,
) -> tuple[Config, RunFolder]:
    """Return saved config and folder of the run of --workdir, or of --config by its default folder.

    words: overrides, for fields that may change on resume or with their saved values. Only the name of the config file
    is used, so the same --config reads a run that was trained with overrides. known, first: as in split_words. needs:
    as in run_copies.
    """
    file, workdir, trusted = options.get("--config"), options.get("--workdir"), TRUST in options
    if workdir is None:
        if file is None:
            newest = newest_run()
            example = "" if newest is None else f", for example --workdir={newest}"
            raise UserError(f"[arguments] type --config=FILE or --workdir=DIR to name the run{example}")
        config = read_config(file)
        names = [item for item in split_words(words, config, known, first) if item.path == "name"]
        folder = replace(RunFolder.of_config(apply_overrides(config, names).name), trusted=trusted)
    else:
        config = Config()
        if file is not None:
            find_config(file)  # the file is not needed, but a wrong name raises an error
        folder = RunFolder.named(workdir, mounts_in(words), trusted=trusted)
        fetch_run(folder)
        if file is not None:
            _registered_by(find_config(file), folder)
    run_copies(folder, words, needs)
    return _saved_with(folder, words, config, known, first), folder


def config_of_run(
    workdir: str, words: Sequence[str], needs: Collection[str] = ALL, *, trusted: bool = False
) -> Config:
    """Return the saved config of a run, or of a checkpoint's run, with overrides applied; the run is not changed.

    needs: as in run_copies. trusted: --trust-code is set.
    """
    from mudd_core.run.store.json_files import read_saved_config

    folder = RunFolder.named(run_and_step(workdir)[0], mounts_in(words), trusted=trusted)
    fetch_run(folder)
    run_copies(folder, words, needs)
    saved = read_saved_config(folder)
    overrides = split_words(words, saved)
    config = apply_overrides(saved, overrides)
    check_saved(config, typed_names(overrides))
    return config


def _registered_by(file: Path, folder: RunFolder) -> None:
    """Run the config file that the command names, if the run in `folder` was started with it and needs it."""
    from mudd_core.run.store.json_files import facts_of

    source = of_facts(facts_of(folder))
    if source is not None and source.file == str(file.resolve()):
        replay(file, source.registers)


def _saved_with(
    folder: RunFolder, words: Sequence[str], fallback: Config, known: Sequence[str], first: str
) -> Config:
    """Return the saved config with the overrides applied.

    fallback: a config with the valid fields, if there is no run.
    """
    from mudd_core.run.store.json_files import facts_of, read_saved_config

    if not folder.holds_run:
        split_words(words, fallback, known)  # a misspelt option may be the reason
    saved = read_saved_config(folder)
    overrides = split_words(words, saved, known, first)
    asked = apply_overrides(saved, overrides)
    facts = facts_of(folder)
    asked = with_earlier_values(asked, saved, facts)
    if any(named_in(words, key) for key in COPIES):
        asked = as_saved(asked, folder, facts)
        saved = read_saved_config(folder)  # with the code that is known now
    check_saved(asked, typed_names(overrides))
    # The base of adapters is compared by its hash, not by its path.
    base = ("start.load_parameters_path",) if saved.tune.method == "lora" else ()
    fixed = [one for one in differences(saved, asked) if not one.free_on_resume and one.path not in base]
    if fixed:
        lines = "\n".join(f"  {change}" for change in fixed)
        raise UserError(
            f"[arguments] {folder} was trained with other values:\n{lines}\nA command that reads a "
            "run uses the saved values; leave these arguments out."
        )
    return asked
