"""Commands of original programs: their arguments as a Request, and the weights and files for their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import write_error
from mudd_core.base.storage import is_url, mapped, mirror_folder
from mudd_core.cli.argv import require_takers
from mudd_core.cli.names import READING
from mudd_core.cli.request import Request
from mudd_core.config import check_config
from mudd_core.config.fields import walk
from mudd_core.programs.program import CommandLine
from mudd_core.run.store.config_source import recorded
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved
    from mudd_core.run.ranks.ranks import Ranks


def load_original(asked: CommandLine, request: Request, words: Sequence[str]) -> bool:
    """Resolve the arguments if they are in the grammar of an original program; return False for mudd_core's grammar."""
    from mudd_core.programs.detect import resolve

    with recorded(words) as source:
        resolved = resolve(asked)
    if resolved is None:
        return False
    request.command, request.resolved, request.source = resolved.command, resolved, source
    request.typed = list(words)
    if resolved.answer:
        return True
    require_takers(request.command, request.options)
    request.options.pop("--config", None)
    if resolved.split:
        request.options.setdefault("--split", resolved.split)
    if resolved.workdir:
        request.options["--workdir"] = resolved.workdir
    request.words = []
    if request.command in READING and not resolved.evaluates_start:
        request.options.setdefault("--workdir", str(Path("runs") / resolved.config.name))
        request.words = _free_words(resolved)
        return True
    request.config = resolved.config
    if "--explain" not in request.options and not resolved.answer:
        check_config(request.config)
    return True


def _free_words(resolved: Resolved) -> list[str]:
    """Return arguments for a command that reads a run: the fields of the command that may change on resume."""
    typed = {path for path, origin in resolved.origins.items() if origin.word}
    return [
        f"{info.path}={info.value}"
        for info in walk(resolved.config)
        if info.path in typed and info.free_on_resume and info.path != "name"
    ]


def import_weights(resolved: Resolved | None, ranks: Ranks) -> None:
    """Create a work directory from the initial weights of another program's run, unless the directory exists."""
    if resolved is None or resolved.imports is None or not ranks.first:
        return
    source, folder = resolved.imports
    if not RunFolder(Path(folder)).holds_run:
        from mudd_core.tools.import_weights import command as import_command

        # Only the weights of the source are used, never its tokenizer.
        import_command.main([source, f"--workdir={folder}", "--tokenizer=bytes"])


def write_files(resolved: Resolved | None, ranks: Ranks) -> None:
    """Write the additional files of another program's run; raise SaveError if that fails."""
    from mudd_core import _core

    if resolved is None or not ranks.first:
        return
    for asked, text in resolved.writes.items():
        path = mapped(asked, resolved.config.storage.map)
        path = (
            str(mirror_folder(path)) if is_url(path) else path
        )  # the path is relative to the work directory, into which the file is copied
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _core.replace_file(path, text.encode())
        except OSError as error:
            raise write_error(path, error) from error
