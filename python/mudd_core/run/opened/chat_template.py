"""Find the chat template of an opened run or folder."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import is_command_line
from mudd_core.config import Config, DataConfig
from mudd_core.data.chat.templates import TEMPLATE, ChatTemplate, template_or_none
from mudd_core.data.tokenizers.folder import CONFIG
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.run.build.run_tokenizer import run_template
from mudd_core.run.store.run_folder import RunFolder


def chat_template(
    path: Path, config: Config, folder: RunFolder | None, tokenizer: Tokenizer, named: str = ""
) -> ChatTemplate:
    """Return the template that a run was trained with, else the template in the folder of its weights or tokenizer.

    path: of the run or folder. folder: of a run. named: chatml or a file, to use instead. Raise UserError if there is
    no template.
    """
    if not named and folder is not None and (found := run_template(config, folder, tokenizer)) is not None:
        return found
    place = path if folder is None else folder.path
    settings = DataConfig(tokenizer=str(place.absolute()), template=named or "auto")
    if (found := template_or_none(settings, tokenizer)) is not None:
        return found
    raise UserError(
        f"[chat] template: {path} has no chat template ({TEMPLATE}, or chat_template in {CONFIG}); "
        f"{template_remedy()}, a Jinja template; a model answers well only with the template that it was trained with"
    )


def template_remedy() -> str:
    """Return the option, or in Python the argument, that names another template."""
    if is_command_line():
        return "type --template=chatml, or --template=FILE"
    return "pass template='chatml' or a file"
