"""Where the value of a config field comes from, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.config import Config, find_config, read_config, split_words
from mudd_core.config.fields import walk
from mudd_core.config.keys import rows_of
from mudd_core.config.overrides import field_path
from mudd_core.config.suggest import nearest_field
from mudd_core.grammars.resolved import Origin, Resolved


def origins_of_words(
    config: Config, file: str, words: Sequence[str], known: Sequence[str] = ()
) -> dict[str, Origin]:
    """Where each value of a config of our own comes from: the family's default, the file, an argument."""
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


def explained(config: Config, name: str, grammar: str, origins: Mapping[str, Origin]) -> str:
    """Value, default, file and argument of a field, or of the fields that a key of the grammar decides."""
    infos = {info.path: info for info in walk(config)}
    row = rows_of(grammar).get(name) if grammar else None
    wanted = [path for path in row.fields if path in infos] if row is not None else []
    lines = []
    if row is not None:
        lines.append(f"{name}: {row.fate}{f'; {row.text}' if row.text else ''}")
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
    return "\n".join(lines)


def origin_text(resolved: Resolved) -> str:
    """A line for each origin of values: the arguments, then each file, with the fields that it decides."""
    by_place: dict[str, list[str]] = {}
    for path, origin in resolved.origins.items():
        place = "arguments" if origin.word else Path(origin.file).name
        shown = f"{path} ({origin.word})" if origin.word else path
        by_place.setdefault(place or "defaults", []).append(shown)
    lines = [f"from {place}: {', '.join(paths)}" for place, paths in by_place.items()]
    return "\n".join(
        textwrap.fill(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in lines
    )
