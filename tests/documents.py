"""The outcomes of the commands in the original programs' documents (document_commands.py).

    python tests/documents.py [NAME ...]     write the outcomes in tests/data/commands/NAME.txt again

An outcome has the work directory, the notes and the fields of the config that differ from the family's defaults.
A test compares them with the outcomes of the code; read their changes before a commit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import document_commands
from document_commands import (
    ITEMS,
    PROGRAMS,
    Command,
    commands,
    new_commands,
    others,
    outcome_lines,
    parts,
    printed_commands,
)
from mudd_core.config import Config
from mudd_core.config.fields import walk
from mudd_core.programs.detect import resolve
from mudd_core.programs.program import CommandLine, is_yml, program_of_command

FOLDER = Path(__file__).resolve().parent / "data" / "documents"
_PREPROCESS = "mudd_core.preprocess"  # trains nothing, so it has no outcome
_SHAPE = FOLDER.parents[2] / "configs" / "clm" / "gpt2.json"
__all__ = ["PROGRAMS", "Command", "commands", "kept", "others", "outcomes", "parts", "printed_commands"]
_OPTIONS = ("--workdir", "--mode")


def asked(command: Command) -> CommandLine:
    """Return the parts of the command line, as cli/argv.py splits it."""
    first = {"mudd_core.train": "jax_lm.train"}.get(command.program, "")
    options = {}
    words = []
    config = ""
    for word in command.words:
        name, _, value = word.partition("=")
        if name in _OPTIONS:
            options[name] = value
        elif name == "--config":
            config = value
        else:
            words.append(word)
    if not first and words and program_of_command(words[0]) is not None:
        first = words.pop(0)
    if not first and words and is_yml(words[0]):
        config = words.pop(0)
    return CommandLine(first, config, tuple(words), options, {})


def fields_of(config: Config) -> dict[str, Any]:
    """Return the fields of a config that differ from the defaults of its family."""
    defaults = {info.path: info.value for info in walk(Config(model=type(config.model)()))}
    return {"model.family": config.model.family} | {
        info.path: info.value for info in walk(config) if info.value != defaults[info.path]
    }


def outcome(command: Command) -> dict[str, Any]:
    """Return the outcome of a command line that trains."""
    found = resolve(asked(command))
    assert found is not None, command
    return {
        "words": [command.program, *command.words],
        "grammar": found.grammar,
        "command": found.command,
        "workdir": found.workdir,
        "notes": found.notes,
        "config": fields_of(found.config),
    }


def kept(name: str) -> list[dict[str, Any]]:
    """Return the committed outcomes of a document, each with the arguments of its command."""
    found = []
    for part, new in new_commands(name):
        trained = [command for command in new if command.program != _PREPROCESS]
        for command, outcome in zip(trained, part.outcomes, strict=True):
            found.append({"words": [command.program, *command.words], **outcome})
    return found


def outcomes(name: str) -> list[dict[str, Any]]:
    """Return the outcomes of the command lines of a document, as JSON values."""
    with hub():
        found = [outcome(command) for command in commands(name) if command.program != _PREPROCESS]
    # The name of imported weights contains a hash of their path.
    text = re.sub(r"(runs/imported/\w+)-[0-9a-f]{12}", r"\1", json.dumps(found))
    plain: list[dict[str, Any]] = json.loads(text)
    return plain


@contextmanager
def hub() -> Iterator[None]:
    """Set HF_HOME to a folder like that of `hf download openai-community/gpt2`, without weights."""
    before = os.environ.get("HF_HOME")
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "hub" / "models--openai-community--gpt2"
        for folder in ("refs", "snapshots/abc"):
            (place / folder).mkdir(parents=True)
        (place / "refs" / "main").write_text("abc", encoding="ascii")
        (place / "snapshots" / "abc" / "model.safetensors").touch()
        shutil.copy(_SHAPE, place / "snapshots" / "abc" / "config.json")
        os.environ["HF_HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("HF_HOME") if before is None else os.environ.update(HF_HOME=before)


def main() -> None:
    for name in sys.argv[1:] or PROGRAMS:
        file = document_commands.FOLDER / f"{name}.txt"
        file.write_text(rewritten(name, file.read_text(encoding="utf-8")), encoding="utf-8")


def rewritten(name: str, text: str) -> str:
    """Return the text of a document's file with the outcomes that the code resolves now."""
    resolved = iter(outcomes(name))
    blocks = [text.partition("\n\n")[0]]
    for part, new in new_commands(name):
        lines = [*(f"=== {note}" for note in part.notes), *part.text.splitlines()]
        for _ in (command for command in new if command.program != _PREPROCESS):
            found = next(resolved)
            lines += outcome_lines({key: value for key, value in found.items() if key != "words"})
        blocks.append("\n".join(lines))
    items = text[text.index(ITEMS) :].rstrip("\n")
    return "\n\n".join([*blocks, items]) + "\n"


if __name__ == "__main__":
    main()
