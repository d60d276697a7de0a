"""The origin of a config field's value: a default, a file or an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mudd_core.base.errors import UserError
from mudd_core.base.show.printable import visible
from mudd_core.config.fields import walk
from mudd_core.config.load import find_config, read_config
from mudd_core.config.overrides import field_path, split_words
from mudd_core.config.run_config import Config
from mudd_core.config.suggest import nearest_field


@dataclass(frozen=True)
class Origin:
    """The origin of a field's value."""

    default: object  # of the grammar
    file: str  # file that set it; empty if none did
    word: str  # argument of the command line; empty if none did


class Key(NamedTuple):
    """A key of an original program, as --explain prints it."""

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


def explained(config: Config, name: str, origins: Mapping[str, Origin], key: Key | None = None) -> str:
    """Return value, default, file and argument of a field, or of the fields that a key of a program sets.

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
        lines += [
            f"  default  {default}",
            f"  file     {origin.file or '-'}",
            f"  word     {origin.word or '-'}",
        ]
    return visible("\n".join(lines))
