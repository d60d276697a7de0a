"""A command in another program's grammar as a config, and descriptions of its keys and their origins."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.show.printable import visible_line
from mudd_core.config import Config
from mudd_core.config.origins import Key, Origin, explained
from mudd_core.programs.program import rows_of

if TYPE_CHECKING:
    from mudd_core.programs.mu_transformer.sweep import Sweep


@dataclass(frozen=True)
class Resolved:
    """An ordinary config, and how it was derived from a command.

    command: one of train, validate, sample. workdir: the run's folder if the grammar sets it, else empty.
    origins: the origin of each field by path. notes: lines for the user about keys without effect. files: the files
    that were read.
    style: the style that log.style=auto stands for. answer: a message to print; nothing runs then.
    writes: the contents, by path, of extra files that the run writes at its start.
    imports: a transformers folder, and the work directory to import it into first (start.load_parameters_path).
    sweep: the last action of a run of a sweep. split: valid or test for validate; empty for other commands.
    fields: the original program's fields by name, for the first lines of its style. tags: the command validate writes
    tags.
    evaluates_start: the command validate evaluates the weights that the config starts from.
    """

    grammar: str
    config: Config
    command: str = "train"
    workdir: str = ""
    origins: dict[str, Origin] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    style: str = "ours"
    answer: str = ""
    writes: dict[str, str] = field(default_factory=dict)
    imports: tuple[str, str] | None = None
    sweep: Sweep | None = None
    split: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    tags: bool = False
    evaluates_start: bool = False


def explained_key(resolved: Resolved, name: str) -> str:
    """Return a text about a config field, or about the fields that a key of the grammar sets, with their origins."""
    row = rows_of(resolved.grammar).get(name)
    key = None if row is None else Key(f"{row.fate}{f'; {row.text}' if row.text else ''}", row.fields)
    return explained(resolved.config, name, resolved.origins, key)


def origin_text(resolved: Resolved) -> str:
    """Return a line for each origin of values (argument, file), with the fields that it sets."""
    by_place: dict[str, list[str]] = {}
    for path, origin in resolved.origins.items():
        place = "arguments" if origin.word else Path(origin.file).name
        shown = f"{path} ({visible_line(origin.word)})" if origin.word else path
        by_place.setdefault(place or "defaults", []).append(shown)
    lines = [f"from {place}: {', '.join(paths)}" for place, paths in by_place.items()]
    return "\n".join(
        textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines
    )
