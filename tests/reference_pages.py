"""Pages of docs/reference that come from the code: commands, fields, exit and error codes, messages, the API.

`./run docs` writes them.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from pathlib import Path

import api_page
import message_page
import table_cells
from mudd_core.base import errors
from mudd_core.cli import entry, help
from mudd_core.cli import main as command_line
from mudd_core.cli.error_codes.lookup import marks_of
from mudd_core.cli.error_codes.table import KINDS
from mudd_core.cli.names import ALIASES, COMMANDS, TOOLS
from mudd_core.config import FAMILIES, Config
from mudd_core.config.describe import shown
from mudd_core.config.fields import FieldInfo, walk

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_ROOT = str(FOLDER.parents[1])
_NOTE = "`./run docs` writes this page from the code."
_FIELDS, _MESSAGES, _ERROR_CODES = "fields", "messages", "error-codes"
_SUB = ("mup check", "mup transfer")


def pages() -> dict[Path, str]:
    """Return every page of the folder, each as it should be now."""
    found = {
        "commands": commands(),
        _FIELDS: shared_fields(),
        "exit-codes": exit_codes(),
        _ERROR_CODES: error_codes(),
        "api": api_page.text(),
        _MESSAGES: message_page.text(),
    }
    for family in FAMILIES:
        found[f"fields-{family}"] = family_fields(family)
    return {FOLDER / f"{name}.md": f"{text}\n" for name, text in found.items()}


def commands() -> str:
    """Return the page of all commands: what each does, its options and examples."""
    abouts = COMMANDS | {name: about for name, (_, about) in TOOLS.items()}
    parts = [
        "# Commands and their options",
        f"`launch.py COMMAND --help` prints the same. {_NOTE}",
        "Aliases: " + ", ".join(f"`{name}` runs `{of}`" for name, of in ALIASES.items()) + ".",
        f"## launch.py\n\n{_fenced(printed('--help'))}",
    ]
    for name in sorted((*abouts, *_SUB)):
        about = f"{_sentence(abouts[name])}\n\n" if name in abouts else ""
        parts.append(f"## {name}\n\n{about}{_fenced(printed(*name.split(), '--help'))}")
    return "\n\n".join(parts)


def printed(*words: str) -> str:
    """Return what a command prints, without the folder of this checkout."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert command_line(list(words)) == 0, words
    return output.getvalue().rstrip().replace(f"{_ROOT}/", "")


def shared_fields() -> str:
    """Return the page of the fields that all families have, one table a section."""
    sections: dict[str, list[FieldInfo]] = {}
    for info in walk(Config()):
        section = info.path.partition(".")[0] if "." in info.path else "run"
        if section != "model":
            sections.setdefault(section, []).append(info)
    links = ", ".join(f"[{name}](fields-{name}.md)" for name in FAMILIES)
    parts = [
        "# Config fields: data, training, optimizer, evaluation, sampling",
        f"Set a field by `section.field=value` on the command line. Each family has a page of its model: {links}. "
        f"Fields with a * may change when a run is resumed. {_NOTE}",
    ]
    parts += [f"## {name}\n\n{_table(infos)}" for name, infos in sections.items()]
    return "\n\n".join(parts)


def family_fields(family: str) -> str:
    """Return the page of the model's fields of one family."""
    config = Config(model=FAMILIES[family].config())
    infos = [info for info in walk(config) if info.path.startswith("model.")]
    about = inspect.getdoc(FAMILIES[family].config) or ""
    others = f"The other fields are [the same for all families]({_FIELDS}.md). {_NOTE}"
    return "\n\n".join(
        [f"# Config fields of the model: {family}", api_page.prose(about), others, _table(infos)]
    )


def exit_codes() -> str:
    """Return the page of the exit codes, with the exception that ends with each."""
    codes = " ".join((inspect.getdoc(entry) or "").partition("\n\n")[2].split())
    rows = ["| exit code | exception | reason |", "| --- | --- | --- |"]
    for name, kind in sorted(vars(errors).items(), key=lambda one: getattr(one[1], "exit_code", 0)):
        if inspect.isclass(kind) and isinstance(vars(kind).get("exit_code"), int):
            about = (inspect.getdoc(kind) or "").partition("\n")[0]
            rows.append(f"| {kind.exit_code} | `{name}` | {re.sub(r' [(]exit [0-9]+[)]', '', about)} |")
    by_command = [f"- `{name}`: {text}" for name, text in help.EXIT_CODES.items()]
    note = (
        f"[Messages]({_MESSAGES}.md) has the commonest errors and their solutions, [error codes]({_ERROR_CODES}.md) "
        f"has each kind of error. {_NOTE}"
    )
    return "\n\n".join(
        ["# Exit codes", note, "All commands: " + codes, "\n".join(by_command), "\n".join(rows)]
    )


def error_codes() -> str:
    """Return the page of the error codes, a section for each entry of the table."""
    parts = [
        "# Error codes",
        "Each kind of error has a code. On a terminal, an error without a command to copy is followed by the line that "
        "prints its entry, such as `launch.py --explain-error=MC204`. `launch.py --explain-error` lists all codes, and "
        f"`launch.py --explain-error=65` the codes of an exit code. {_NOTE}",
        "\n".join(
            [
                "| code | exit code | kind |",
                "| --- | --- | --- |",
                *(
                    f"| [{kind.code}](#{kind.code.lower()}) | {kind.exit_code} | {kind.title} |"
                    for kind in KINDS
                ),
            ]
        ),
    ]
    for kind in KINDS:
        page = os.path.relpath(kind.page, "reference")
        marks = ", ".join(f"`{mark}`" for mark in marks_of(kind))
        parts.append(
            f"## {kind.code}\n\n{kind.title} (exit code {kind.exit_code}). {kind.happened}\n\n{kind.mend} See "
            f"[{kind.page}]({page}).\n\nErrors of this kind: {marks}"
        )
    return "\n\n".join(parts)


def _table(infos: list[FieldInfo]) -> str:
    lines = ["| field | default | type | meaning |", "| --- | --- | --- | --- |"]
    for info in infos:
        kind = " or ".join(f"`{choice}`" for choice in info.choices) or info.kind.__name__
        unit = f", in {info.unit}" if info.unit else ""
        star = " *" if info.free_on_resume else ""
        cells = (
            f"`{info.path}`{star}",
            f"`{shown(info.value)}`",
            f"{kind}{unit}{_bounds(info)}",
            table_cells.sentences(info.text).replace("<", r"\<"),
        )
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def _bounds(info: FieldInfo) -> str:
    ends = [f"at least {info.low:g}"] if info.low is not None else []
    ends += [f"at most {info.high:g}"] if info.high is not None else []
    return f", {' and '.join(ends)}" if ends else ""


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
