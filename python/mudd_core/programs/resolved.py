"""A command in another program's grammar as a config, with its keys and origins as text."""

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
    """An ordinary, checked config and how it came about.

    command: ours (train, validate, sample). workdir: where the run is, if the grammar decides it; empty = as usual.
    origins: by path of our fields. notes: lines for the user, about keys that do nothing here. files: the files that
    were read. style: value of log.style=auto. answer: text to print in place of running anything. writes: texts by path
    that the run leaves when it starts, beside its own files. imports: folder of Hugging Face's weights, and the work
    directory into which they are imported first (start.load_parameters_path). sweep: the end of a run of a sweep.
    split: that validate reads, valid or test; empty for other commands. fields: of the original program, by name, for
    the first lines of its style. tags: validate writes its tags. evaluates_start: validate evaluates the weights that
    the config starts from.
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
    """Return what a key of the grammar or a field of ours decides, and where the values come from."""
    row = rows_of(resolved.grammar).get(name)
    key = None if row is None else Key(f"{row.fate}{f'; {row.text}' if row.text else ''}", row.fields)
    return explained(resolved.config, name, resolved.origins, key)


def origin_text(resolved: Resolved) -> str:
    """A line for each origin of values: the arguments, then each file, with the fields that it decides."""
    by_place: dict[str, list[str]] = {}
    for path, origin in resolved.origins.items():
        place = "arguments" if origin.word else Path(origin.file).name
        shown = f"{path} ({visible_line(origin.word)})" if origin.word else path
        by_place.setdefault(place or "defaults", []).append(shown)
    lines = [f"from {place}: {', '.join(paths)}" for place, paths in by_place.items()]
    return "\n".join(
        textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines
    )
