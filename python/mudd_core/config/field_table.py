"""A config as a table for notebooks: the fields that differ from the defaults first, all of them behind a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core.base.show.printable import visible_line
from mudd_core.base.show.tables import folded, html_table
from mudd_core.config.fields import walk

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_HEAD = ("field", "value", "default", "meaning")


def shown(value: object) -> str:
    """The value of a field as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{visible_line(value)}'"
    return f"{value:g}" if isinstance(value, float) else str(value)


def config_table(config: DataclassInstance, default: DataclassInstance, title: str) -> str:
    """HTML: the changed fields with their defaults, and all fields with the changed ones in bold."""
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
