"""Config as text for people: the table of --help and the listing printed when a run starts."""

from __future__ import annotations

import textwrap

from mudd_core.config.field_table import shown
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.schema import Config

_COLUMN = 30  # where the meaning of a field begins in a table


def _entry(info: FieldInfo, width: int) -> str:
    kind = " | ".join(info.choices) if info.choices else info.kind.__name__
    unit = f", in {info.unit}" if info.unit else ""
    free = ", may change on resume" if info.free_on_resume else ""
    head = f"  {info.path} = {shown(info.value)}  ({kind}{unit}{free})"
    if len(head) > width:
        head = textwrap.fill(head, width, subsequent_indent=" " * 6, break_on_hyphens=False)
    return head + "\n" + textwrap.fill(info.text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def short_entry(info: FieldInfo, width: int) -> str:
    """One line for a field: value, as much of the meaning as fits, and unit or choices."""
    head = f"  {info.path}={shown(info.value)}"
    kind = " | ".join(info.choices) or info.unit
    unit = f" [{kind}]" if kind else ""
    space = width - max(len(head), _COLUMN) - 1 - len(unit)
    return f"{head:<{_COLUMN}} {textwrap.shorten(info.text, space, placeholder=' ...')}{unit}"


def field_help(config: Config, width: int = 100, only: str = "", without: str = "\n") -> str:
    """Every field (below `only`, not below `without`) with its value in this config, type, unit and meaning."""
    shown = (
        info for info in walk(config) if info.path.startswith(only) and not info.path.startswith(without)
    )
    return "\n".join(_entry(info, width) for info in shown)


def listing(config: Config) -> str:
    """`path = value` for every field, one section a line."""
    sections: dict[str, list[str]] = {}
    for info in walk(config):
        section, _, leaf = info.path.rpartition(".")
        sections.setdefault(section, []).append(f"{leaf}={shown(info.value)}")
    lines = [f"{section or 'run'}: {' '.join(pairs)}" for section, pairs in sections.items()]
    folded = (textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(folded)
