"""mc.load_run and mc.load: a run, a checkpoint, a saved model or a Hugging Face folder as Python objects."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from mudd_core.base.arguments.checks import require_flag, step_or_best
from mudd_core.base.arguments.known import known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.other_folders import is_hugging_face, require_no_other
from mudd_core.base.paths import local
from mudd_core.config.suggest import nearest
from mudd_core.interop import load_original
from mudd_core.run.opened.run import Run
from mudd_core.run.opened.source import Source, config_of, folder_tokenizer, own_source
from mudd_core.run.store.original_run import original_run_text, reader_state_of

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model

_WHAT = "a work directory, a checkpoint of one, a folder of model.save() or one of Hugging Face"


class Loaded(NamedTuple):
    """The result of mc.load: `model, tokenizer = mc.load(path)`."""

    model: Model
    tokenizer: Tokenizer | None


@known_arguments("load_run")
def load_run(
    path: str | Path,
    step: int | Literal["best"] | None = None,
    *,
    average: bool = False,
    trust_code: bool = False,
) -> Run:
    """Open a run for reading: a work directory, a checkpoint of one, a folder of model.save() or of Hugging Face.

    step: the step of the checkpoint; None for the newest, "best" for the lowest validation loss. average: use the
    averaged weights of train.average. It takes no lock and reads no training text, so it works while the run trains.
    Raise UserError for another path, FormatError for a damaged file.

    trust_code: code in the folder of a run may run when the model is used; without it, only the code of your own runs
    on this machine may (docs/your-own.md).
    """
    folder = local(path, "[load_run] path").expanduser()
    step = step_or_best("load_run", step)
    require_flag("load_run", "average", average)
    if not folder.exists():
        raise UserError(
            f"[load_run] path: expected {_WHAT}, got '{path}', which does not exist{_hint(folder)}"
        )
    source = own_source(folder, step, average=average, trust_code=trust_code)
    if source is None and is_hugging_face(folder):
        if step is not None:
            raise UserError(
                f"[load_run] step: expected none for a folder of Hugging Face, got {step} for {folder}"
            )
        if average:
            raise UserError(
                f"[load_run] average: expected a run, got the folder {folder} of Hugging Face; leave it out"
            )
        source = _of_hugging_face(folder)
    if source is None and folder.is_dir() and (theirs := reader_state_of(folder)) is not None:
        raise UserError(f"[load_run] {original_run_text(folder, theirs)}")
    if source is None:
        require_no_other(folder, "[load_run] path:", _WHAT)
        raise UserError(f"[load_run] path: expected {_WHAT}, got {folder}, which is none of them")
    return Run(source)


def load(
    path: str | Path,
    step: int | Literal["best"] | None = None,
    *,
    average: bool = False,
    trust_code: bool = False,
) -> Loaded:
    """Return the model and the tokenizer of a run or folder that load_run opens: `model, tokenizer =
    mc.load("runs/x")`.

    The tokenizer is None if the run has none. average, trust_code: as for load_run.
    """
    run = load_run(path, step, average=average, trust_code=trust_code)
    return Loaded(run.model, run.tokenizer_or_none())


def _of_hugging_face(folder: Path) -> Source:
    model = load_original("hf", folder, folder)
    return Source(folder, config_of(folder, model), lambda: (model, None), partial(folder_tokenizer, folder))


def _hint(path: Path) -> str:
    """Return a hint with an existing folder: one in runs/, or the nearest name in the same parent folder."""
    inside = Path("runs") / path
    if not path.is_absolute() and inside.is_dir():
        return f"; did you mean '{inside}'?"
    try:
        return nearest(str(path), [str(entry) for entry in path.parent.iterdir() if entry.is_dir()])
    except OSError:
        return ""
