"""A command line whose work directory has a run with another config: the commands that work instead."""

from __future__ import annotations

import shlex

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.request import Request
from mudd_core.cli.same_run import command_line
from mudd_core.config import Config, OtherConfigError
from mudd_core.config.arguments import with_values, without
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.identity import config_to_run, imported_weights, require_weights
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.other_config import new_workdir, refused_command
from mudd_core.run.store.run_folder import RunFolder

_START = "start.load_parameters_path"


def in_new_folder(request: Request, ranks: int = 1) -> str:
    """Return the typed command with the first free work directory next to its own.

    For the saved config of an imported run, the new run starts from the imported weights too.
    """
    line = shlex.split(command_line(request, ranks=ranks))
    words = without(line, ("workdir",))
    # In some grammars the run is in a folder below --workdir.
    typed = [value for item, value in with_values(line) if item.option == "--workdir"]
    workdir = typed[-1] if typed else request.typed_workdir
    weights = imported_weights(request.folder)
    if weights is not None and request.folder.has_config(request.options.get("--config", "")):
        words += [] if any(_START in word for word in words) else [f"{_START}={weights}"]
    return shlex.join([*words, f"--workdir={new_workdir(workdir)}"])


def refused(
    error: OtherConfigError, request: Request, folder: RunFolder, asked: Config, done: int, ranks: int = 1
) -> UserError:
    """Return the error of a command whose run has another config, with the commands that work."""
    new, saved = in_new_folder(request, ranks), read_saved_config(folder)
    return refused_command(error, request.typed_workdir, saved, asked, done, typed_program(), new)


def refusal(request: Request) -> str:
    """Return the error with which training the command would be refused; empty if it would not. Nothing is written."""
    folder, asked = request.folder, request.required_config()
    if folder.url:
        return ""
    done = Checkpoints(folder).newest()
    try:
        require_weights(folder)
        config_to_run(folder, asked, lambda: done)
    except OtherConfigError as error:
        return str(refused(error, request, folder, asked, done))
    except (UserError, FormatError) as error:
        return str(error)
    return ""
