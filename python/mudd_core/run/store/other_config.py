"""The refusal of a resume with another config: the commands or calls that work, then the fields that differ."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import free_folder
from mudd_core.base.storage import is_url, mapped
from mudd_core.config import Config, OtherConfigError
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.longer import (
    can_be_longer,
    fields_in_new_folder,
    in_new_folder,
    in_place,
    longer_workdir,
)
from mudd_core.run.store.resumed_config import may_extend
from mudd_core.run.store.run_folder import RunFolder

_START, _TOKENIZER = "start.load_parameters_path", "data.tokenizer"
_NEW, _AS_IT_WAS = "To start a new run", "To resume it as it was"
_LONGER = "To train {} more updates with a new schedule, in a new folder"
_IN_PLACE = "Its schedule also allows to continue in the same folder"

Ways = list[tuple[str, str]]  # titles, and the command or call of each


def new_workdir(workdir: str) -> str:
    """Return the first free name for a second run next to a work directory: runs/tiny-2."""
    return f"{workdir}-2" if is_url(workdir) else str(free_folder(Path(workdir)))


def refused_command(
    error: OtherConfigError,
    workdir: str,
    saved: Config,
    asked: Config,
    done: int,
    program: Sequence[str],
    new: str,
) -> UserError:
    """Return the error of a command after `done` updates of the run, the wanted command first.

    workdir: as the user names it. program: the arguments that start this program. new: the same command in a new
    folder. Raise UserError instead if the asked config names a file that does not exist.
    """
    _require_files(error, asked)
    here = [*program, f"--workdir={workdir}"]
    ways: Ways = [(_NEW, new), (_AS_IT_WAS, shlex.join(here))]
    if more := _more_steps(error, saved, asked, done):
        longer: Ways = []
        if can_be_longer(saved):
            longer.append((_LONGER.format(more), in_new_folder(workdir, saved, more, done, program)))
        if _extends(saved, asked, done):
            longer.append((_IN_PLACE, in_place(workdir, asked.train.steps, program)))
        ways = longer or ways
    return _refused(error, workdir, ways)


def refused_call(error: OtherConfigError, folder: RunFolder, asked: Config, done: int) -> UserError:
    """Return the error of a Trainer in Python; otherwise as refused_command."""
    _require_files(error, asked)
    workdir, saved = _shown(folder.path), read_saved_config(folder)
    ways = [
        (_NEW, f"mc.Trainer(config, workdir={new_workdir(workdir)!r})"),
        (_AS_IT_WAS, f"mc.Trainer({workdir!r})"),
    ]
    if more := _more_steps(error, saved, asked, done):
        longer: Ways = []
        if can_be_longer(saved):
            fields, new = fields_in_new_folder(workdir, saved, more), longer_workdir(workdir, done + more)
            longer.append((_LONGER.format(more), f"mc.Trainer(config.replace({fields!r}), workdir={new!r})"))
        if _extends(saved, asked, done):
            extended = {"train.extend": True}
            longer.append((_IN_PLACE, f"mc.Trainer(config.replace({extended!r}), workdir={workdir!r})"))
        ways = longer or ways
    return _refused(error, workdir, ways)


def _refused(error: OtherConfigError, workdir: str, ways: Ways) -> UserError:
    (first, wanted), *others = ways
    lines = [f"[resume] {workdir} contains a run with another config. {first}:", f"  {wanted}"]
    for title, line in others:
        lines += [f"{title}:", f"  {line}"]
    return UserError("\n".join([*lines, "These fields differ:", error.fields]))


def _shown(path: Path) -> str:
    """Return a path relative to the current folder if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _more_steps(error: OtherConfigError, saved: Config, asked: Config, done: int) -> int:
    """Return the further updates of a config that only trains longer than the run; 0 for any other config."""
    steps = asked.train.steps
    alone = [change.path for change in error.changes] == ["train.steps"]
    return steps - done if alone and steps > saved.train.steps and done else 0


def _extends(saved: Config, asked: Config, done: int) -> bool:
    return not asked.train.extend and may_extend(saved, asked.train.steps, done)


def _require_files(error: OtherConfigError, asked: Config) -> None:
    """Raise UserError if a field that differs names a file that does not exist."""
    from mudd_core.data.source_check import check_sources
    from mudd_core.data.sources.access import Access
    from mudd_core.data.tokenizers.source import find_tokenizer

    differ = {change.path for change in error.changes}
    if differ & {"data.path", "data.eval_path"}:
        check_sources(asked)
    if _TOKENIZER in differ and asked.data.tokenizer != "bpe":
        find_tokenizer(asked.data.tokenizer, asked.data.vocab_size, Access.of(asked))
    start = mapped(asked.start.load_parameters_path, asked.storage.map)
    if _START in differ and start and not is_url(start) and not Path(start).exists():
        raise UserError(
            f"[start] load_parameters_path: '{start}' does not exist; name a run or its checkpoint"
        )
