"""What a command in another program's grammar comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from mudd_core.config import Config


@dataclass(frozen=True)
class Origin:
    """Where the value of a field came from."""

    default: object  # of the grammar
    file: str  # that set it; empty if none did
    word: str  # of the command line; empty if none did


@dataclass(frozen=True)
class Resolved:
    """An ordinary, checked config and how it came about.

    command: ours (train, validate, sample). workdir: where the run is, if the grammar decides it; empty = as usual.
    origins: by path of our fields. notes: lines for the user, about keys that do nothing here. files: what was read.
    style: value of log.style=auto. answer: text to print in place of running anything. writes: texts by path that the
    run leaves when it starts, beside its own files. imports: folder of Hugging Face's weights, and the work directory
    into which they are imported first (start.load_parameters_path). sweep: columns of the table that a run of a sweep
    ends with; empty for other runs. split: that validate reads, valid or test; empty for other commands.
    fields: of the original program, by name, for the first lines of its style. tags: validate writes its tags.
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
    sweep: dict[str, str] = field(default_factory=dict)
    split: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    tags: bool = False
