"""What a command in another program's grammar comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mudd_core.config import Config
from mudd_core.config.origins import Origin

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
