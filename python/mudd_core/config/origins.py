"""The origin of a config field's value: a default, a file, an environment variable or an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mudd_core.base.errors import UserError
from mudd_core.base.show.printable import visible
from mudd_core.config.config_files import find_config
from mudd_core.config.fields import walk
from mudd_core.config.load import read_config
from mudd_core.config.overrides import field_path, split_words
from mudd_core.config.run_config import Config
from mudd_core.config.suggest import nearest_field


@dataclass(frozen=True)
class Origin:
    """The origin of a field's value."""

    default: object  # default value in the grammar
    file: str  # the file that set the value; empty if no file did
    word: str  # the argument or VARIABLE=value of the environment that set it; empty if neither did


class Key(NamedTuple):
    """A key of an original program, in the form that --explain prints."""

    text: str
    fields: tuple[str, ...]


def origins_of_words(
    config: Config, file: str, words: Sequence[str], known: Sequence[str] = ()
) -> dict[str, Origin]:
    """Return the origin of each value of a mudd_core config: the family's default, the file, or an argument."""
    path, of_file = str(find_config(file)), {info.path: info.value for info in walk(read_config(file))}
    defaults = {info.path: info.value for info in walk(Config(model=type(config.model)()))}
    infos = list(walk(config))
    typed = {
        field_path(item.path, infos) or item.path: item.word for item in split_words(words, config, known)
    }
    return {
        info.path: Origin(
            defaults.get(info.path),
            path if of_file.get(info.path) != defaults.get(info.path) else "",
            typed.get(info.path, ""),
        )
        for info in infos
    }


# Environment variables that decide a field with this value.
_VARIABLES = {("train.threads", "0"): "OMP_NUM_THREADS", ("log.wandb", "online"): "WANDB_MODE"}


def explained(config: Config, name: str, origins: Mapping[str, Origin], key: Key | None = None) -> str:
    """Return value, default, file, variable and argument of a field, or of the fields that a key of a program sets.

    key: description of the key, and its fields.
    """
    infos = {info.path: info for info in walk(config)}
    wanted = [path for path in key.fields if path in infos] if key is not None else []
    lines = []
    if key is not None:
        lines.append(f"{name}: {key.text}")
    elif (path := field_path(name, list(infos.values()))) is not None and path in infos:
        wanted = [path]
    else:
        raise UserError(
            f"[arguments] --explain: no field '{name}'{nearest_field(name, list(infos.values()))}"
        )
    for path in wanted:
        origin = origins.get(path, Origin(None, "", ""))
        lines.append(f"{path} = {infos[path].value!r}")
        default = "this program's" if origin.default is None else repr(origin.default)
        variable, argument = _split(origin.word)
        variable = variable or _deciding_variable(path, str(infos[path].value))
        lines += [
            f"  default      {default}",
            f"  file         {origin.file or '-'}",
            *([f"  environment  {variable}"] if variable else []),
            f"  argument     {argument or '-'}",
        ]
    return visible("\n".join(lines))


def _split(word: str) -> tuple[str, str]:
    """Return (VARIABLE=value, argument) of the word of an origin; one of them is empty."""
    is_variable = any(word == f"{name}={value}" for name, value in os.environ.items())
    return (word, "") if is_variable else ("", word)


def _deciding_variable(path: str, value: str) -> str:
    """Return VARIABLE=value if a set variable decides a field that has this value, else an empty string."""
    name = _VARIABLES.get((path, value), "")
    return f"{name}={os.environ[name]}" if name in os.environ else ""
