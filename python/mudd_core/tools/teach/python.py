"""mc.teach. python.pyi, which `./run docs` writes, has the types of its keywords."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.arguments.checks import path_text, require_flag
from mudd_core.base.arguments.known import known_arguments
from mudd_core.base.python_arguments import python_errors
from mudd_core.config.keywords import completed, override_words
from mudd_core.config.replaced import Value
from mudd_core.run.opened.run import Run, folder_named_by
from mudd_core.tools.teach.command import parser
from mudd_core.tools.teach.written import TOP, Teacher, written

_NAMES = {"[load_run] path:": "[teach] base:", "[data.path]": "[teach] data:"}


@completed
@known_arguments("teach")
def teach(
    base: str | Path | Run,
    data: str | Path,
    to: str | Path,
    *,
    top: int = TOP,
    progress: bool = True,
    **fields: Value,
) -> Teacher:
    """Write a teacher's likeliest tokens for each target of the data: `mc.teach("big", "chat.jsonl", "teacher.h5")`.

    It writes the same file as the command `teach`; mc.tune with loss_teacher="teacher.h5" and a training with
    loss.teacher learn from it. base: the teacher, a folder of Hugging Face or a run. data: conversations, or with
    data_pipeline="text" the text of a run. to: the new HDF5 file. top: tokens kept for each target, less than the
    vocabulary. progress: print what is written and the progress. fields: fields of the config by section and name, such
    as train_seq_len=2048.

    Raise UserError for unusable data, fields, teachers, a `top` out of range and an existing file; TypeError for an
    argument of another type; SaveError if writing fails. A stopped or failed call leaves no file.
    """
    require_flag("teach", "progress", progress)
    if isinstance(top, bool) or not hasattr(top, "__index__"):
        raise TypeError(f"[teach] top: expected a whole number from 1, got {top!r}")
    opened = base if isinstance(base, Run) else None
    words = [
        f"--base={path_text('teach', 'base', folder_named_by(base) if isinstance(base, Run) else base)}",
        f"--data={path_text('teach', 'data', data)}",
        f"--to={path_text('teach', 'to', to)}",
        f"--top={top}",
        *override_words("teach", fields),
    ]
    with python_errors(_NAMES):
        options, rest = parser().read(words)
        return written(options, rest, opened, shown=progress)
