"""The recipes of a race: configs with arguments, or programs of the user, each with a name."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_bytes, read_text
from mudd_core.config import Config, load_config, split_words
from mudd_core.config.saved import config_hash
from mudd_core.run.store.own_code import facts_of

FILE_SUFFIX = ".txt"  # a value of --recipes with this ending is a file of recipes
PROGRAM = "!"  # starts a recipe that is a program
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
EXAMPLE = "wide: small.py model.d_model=384"
# fields that the race sets for each run, with its options
_SET_BY = {"train.steps": "--minutes", "train.epochs": "--minutes", "train.seed": "--seeds"}


@dataclass(frozen=True)
class Recipe:
    """A contestant. config: the config file; empty for a program. arguments: of the config, or the program's argv."""

    name: str
    config: str
    arguments: tuple[str, ...]

    @property
    def is_program(self) -> bool:
        """Return whether the recipe is a program of the user."""
        return not self.config

    def loaded(self, steps: int = 0) -> Config:
        """Return the config, with this number of steps unless it is 0; raise UserError if it is not valid."""
        return load_config(self.config, [*self.arguments, *([f"train.steps={steps}"] if steps else [])])

    def digest(self) -> str:
        """Return a hash of everything that determines a run besides its steps and seed: settings and user files."""
        if self.is_program:
            whole = hashlib.sha256("\0".join(self.arguments).encode())
            for argument in self.arguments:
                if Path(argument).is_file():
                    whole.update(read_bytes(argument))
            return whole.hexdigest()
        config = self.loaded()
        return hashlib.sha256(f"{config_hash(config)} {facts_of(config)}".encode()).hexdigest()


def read_recipes(text: str, overrides: Sequence[str]) -> list[Recipe]:
    """Return the recipes of --recipes: configs divided by commas, or a file of recipes.

    overrides: arguments for every config. Raise UserError if a recipe is not valid or there is no config.
    """
    found = _of_file(Path(text), overrides) if text.endswith(FILE_SUFFIX) else _of_configs(text, overrides)
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"[race] --recipes: expected a name for each recipe, got {name} twice")
    if not found:
        raise UserError(f"[race] --recipes: expected at least one recipe, got none in '{text}'")
    if all(one.is_program for one in found):
        raise UserError("[race] --recipes: expected a config, whose data the programs read, got none")
    return found


def _of_configs(text: str, overrides: Sequence[str]) -> list[Recipe]:
    files = [one.strip() for one in text.split(",") if one.strip()]
    return [_of_config("", file, overrides) for file in files]


def _of_config(name: str, file: str, words: Sequence[str], place: str = "[race]") -> Recipe:
    """Return the recipe of a config; raise UserError if it is not valid.

    name: empty for the name of the config. place: the start of a message about a field that the race sets.
    """
    config = load_config(file, list(words))
    for override in split_words(words, config):
        if option := _SET_BY.get(override.path):
            raise UserError(
                f"{place} {override.path}: expected {option}, which sets it, got {shlex.join(words)}"
            )
    # the steps of a budget replace the epochs of a config
    own = ("train.epochs=0",) if config.train.epochs else ()
    return Recipe(name or config.name, file, (*words, *own))


def _of_file(file: Path, overrides: Sequence[str]) -> list[Recipe]:
    found = []
    try:
        lines = read_text(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"[race] --recipes: expected a file of recipes, got {file}: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found.append(_of_line(line, f"[race] {file}, line {number}", overrides))
    return found


def _of_line(line: str, place: str, overrides: Sequence[str]) -> Recipe:
    name, colon, rest = (part.strip() for part in line.partition(":"))
    try:
        words = shlex.split(rest, comments=True)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    if not colon or not _NAME.fullmatch(name) or not words or words == [PROGRAM]:
        raise UserError(
            f"{place}: expected NAME: CONFIG ARGUMENTS, such as '{EXAMPLE}', got '{line.strip()}'"
        )
    if words[0] == PROGRAM:
        return Recipe(name, "", tuple(words[1:]))
    try:
        return _of_config(name, words[0], (*words[1:], *overrides), "an argument of the recipe,")
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
