"""Config as text for people: the table of --help, the listing of a start, and the table of a notebook."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from mudd_core.base.show.printable import visible_line
from mudd_core.base.show.tables import folded, html_table
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.schema import Sections

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_COLUMN = 30  # column of a field's meaning in a table
_HEAD = ("field", "value", "default", "meaning")


def _entry(info: FieldInfo, width: int) -> str:
    kind = " | ".join(info.choices) if info.choices else info.kind.__name__
    unit = f", in {info.unit}" if info.unit else ""
    free = ", may change on resume" if info.free_on_resume else ""
    head = f"  {info.path} = {shown(info.value)}  ({kind}{unit}{free})"
    if len(head) > width:
        head = textwrap.fill(head, width, subsequent_indent=" " * 6, break_on_hyphens=False)
    return head + "\n" + textwrap.fill(info.text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def short_entry(info: FieldInfo, width: int) -> str:
    """Return one line for a field: value, as much of its meaning as fits, and unit or choices."""
    head = f"  {info.path}={shown(info.value)}"
    kind = " | ".join(info.choices) or info.unit
    unit = f" [{kind}]" if kind else ""
    space = width - max(len(head), _COLUMN) - 1 - len(unit)
    return f"{head:<{_COLUMN}} {textwrap.shorten(info.text, space, placeholder=' ...')}{unit}"


def field_help(config: Sections, width: int = 100, only: str = "", without: str = "\n") -> str:
    """Return every field (below `only`, not below `without`) with its value in this config, type, unit and meaning."""
    shown = (
        info for info in walk(config) if info.path.startswith(only) and not info.path.startswith(without)
    )
    return "\n".join(_entry(info, width) for info in shown)


def listing(config: Sections) -> str:
    """Return `path = value` for every field, one line for each section."""
    sections: dict[str, list[str]] = {}
    for info in walk(config):
        section, _, leaf = info.path.rpartition(".")
        sections.setdefault(section, []).append(f"{leaf}={shown(info.value)}")
    lines = [f"{section or 'run'}: {' '.join(pairs)}" for section, pairs in sections.items()]
    folded = (textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(folded)


def shown(value: object) -> str:
    """Return the value of a field as a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{visible_line(value)}'"
    return f"{value:g}" if isinstance(value, float) else str(value)


def config_table(config: DataclassInstance, default: DataclassInstance, title: str) -> str:
    """Return HTML: the changed fields with their defaults, and all fields with the changed ones in bold."""
    defaults = {info.path: info.value for info in walk(default)}
    rows = [
        (info.path, shown(info.value), shown(defaults.get(info.path, "")), info.text) for info in walk(config)
    ]
    changed = {number for number, (_, value, usual, _) in enumerate(rows) if value != usual}
    some = [rows[number] for number in sorted(changed)]
    table = html_table(
        some, title=f"{title}: {len(some)} of {len(rows)} fields differ from the defaults", head=_HEAD
    )
    return f"{table}\n{folded('all fields', html_table(rows, head=_HEAD, marked=changed))}"
