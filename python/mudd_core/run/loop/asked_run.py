"""The first two arguments of a Trainer: a config and a work directory, or the folder of a run instead of both."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import other_folder, require_no_other
from mudd_core.config import Config
from mudd_core.config.config_files import is_config
from mudd_core.config.fields import replace_path
from mudd_core.config.suggest import nearest
from mudd_core.engine.argument_check import run_config, second_folder
from mudd_core.run.loop.at_step import read_only_run
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import of_facts, require_registered
from mudd_core.run.store.json_files import read_facts, read_saved_config
from mudd_core.run.store.own_code import run_copies
from mudd_core.run.store.read_store import ReadStore
from mudd_core.run.store.run_folder import CHECKPOINTS, RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.saved_run import fetch_run


def asked_run(
    config: Config | str | Path | None, workdir: str | Path | RunStore | None, *, trust_code: bool = False
) -> tuple[Config, str | Path | RunStore | None]:
    """Return (config, work directory) for a Trainer's first two arguments; the folder of a run provides both.

    trust_code: allow the code in the folder of a run to run, also if the run was started elsewhere. Raise UserError if
    the run needs objects that its config file registers, or if a run's folder and another work directory are passed.
    """
    if not isinstance(workdir, str | Path | RunStore | None):
        raise TypeError(f"[Trainer] workdir: expected a folder or None, got {workdir!r}")
    if not isinstance(config, str | Path):
        return run_config(config), workdir
    path, run = Path(config), RunFolder(Path(config), trusted=trust_code)
    if not run.has_identity:
        return _named(config), workdir
    if workdir is not None:
        raise second_folder("Trainer", path, str(workdir))
    found = _saved_config(run)
    if Checkpoints(run).newest() >= found.train.stop_at:
        found = replace_path(found, "train.stop_at", 0)  # the run has already stopped at that step
    return found, path


def run_at_step(path: str | Path, at_step: int, *, trust_code: bool = False) -> tuple[Config, ReadStore]:
    """Return the config of a run and its store, which only reads, for a Trainer at a step.

    Raise UserError for a folder without a run, and for a step after its end.
    """
    run = RunFolder.named(str(path), argument="[Trainer] config", trusted=trust_code)
    if run.url:
        fetch_run(run, at_step)
    if not run.has_identity:
        raise _no_run(path, at_step)
    return read_only_run(_saved_config(run), run, at_step)


def _no_run(path: str | Path, at_step: int) -> UserError:
    """Return the error for a path that is no run; it names the run of a checkpoint, or the nearest run."""
    text = f"[Trainer] at_step: expected the folder of a run as config, got '{path}'"
    owner, step = RunFolder.holding(Path(path))
    if owner.has_identity:
        kind = "a checkpoint" if step is not None else "the folder of checkpoints"
        return UserError(f"{text}, {kind} of a run; type mc.Trainer('{owner}', at_step={at_step})")
    if is_config(str(path)):
        return UserError(f"{text}, a config; leave at_step out for a new run")
    why = "which has no run" if Path(path).exists() else "which does not exist"
    return UserError(f"{text}, {why}{nearest(str(path), _runs_in(Path(path).parent))}")


def _saved_config(run: RunFolder) -> Config:
    """Return the saved config of a run after its own code has run; raise UserError if that is not allowed."""
    _require_registered(run)
    run_copies(run)
    return read_saved_config(run)


def _named(name: str | Path) -> Config:
    """Return the config of a name. Raise UserError with advice if the name looks like a folder or a run."""
    path = Path(name)
    try:
        return run_config(name)
    except UserError:
        owner = path.parent.parent if path.parent.name == CHECKPOINTS else path.parent
        inside = RunFolder(owner).has_identity
        runs = _runs_in(path.parent) if len(path.parts) > 1 else []
        if not path.is_dir() and not runs and not inside:
            raise
    way_out = ""
    if inside:
        way_out = f"; mc.Trainer('{owner}') resumes its run, from the newest checkpoint"
    elif (other := other_folder(path)) is not None and other.base is not None:
        require_no_other(path, "[Trainer] config:", "the name of a config or the folder of a run")
    elif path.is_dir():
        path = path if other is None else other.files
        way_out = f"; mc.Trainer(config, model=mc.load('{path}').model) trains the model of a folder further"
    else:
        way_out = nearest(str(path), runs)
    raise UserError(
        f"[Trainer] config: expected the name of a config or the folder of a run, got '{path}'{way_out}"
    )


def _runs_in(folder: Path) -> list[str]:
    try:
        return [str(entry) for entry in folder.iterdir() if RunFolder(entry).has_identity]
    except OSError:  # there is no such folder
        return []


def _require_registered(run: RunFolder) -> None:
    """Raise UserError with the call to type if the run's data need objects that its config file registers."""
    source = of_facts(read_facts(run))
    if source is None:
        return
    try:
        require_registered(source.registers, source.file)
    except UserError:
        raise UserError(
            f"[Trainer] config: expected the config of {run.path}, because its data need a function "
            f"that the config file registers; type mc.Trainer(mc.load_config('{source.file}'), "
            f"'{run.path}')"
        ) from None
