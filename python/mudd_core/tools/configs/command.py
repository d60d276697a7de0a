"""List the configs, with parameters, tokens of the training and time on this machine.

    python3 launch.py configs                all
    python3 launch.py configs llama          of one kind: llama, gpt, moe, mup, tokenformer, ...
    python3 launch.py configs 405m 450m      with one of these strings in the name or description

NAME is a family, another name of it, or a part of a name, a description or the training text. Then each config is
listed with its description. The time is an estimate from the speed of this machine, as in --plan. To train one, type
--config=NAME.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.show.tables import text_table
from mudd_core.base.show.terminal import WIDTH
from mudd_core.base.units import count_text, duration
from mudd_core.config.config_files import family_configs
from mudd_core.config.foreign import ALIASES, KINDS
from mudd_core.config.load import list_configs
from mudd_core.config.suggest import nearest
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.tools.configs.sizes import Sizes, Speed, of_others, sizes_of, text_of

_HEAD = ("config", "parameters", "tokens", "text", "time here")
_TEXT_WIDTH = 24


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = ToolArguments("configs", __doc__ or "")
    parser.add_argument("kinds", nargs="*", metavar="NAME", help="list only the configs of these kinds")
    kinds = parser.options(words).kinds
    abouts = list_configs()
    names, others = list[str](), list[tuple[str, str, str]]()
    for word in kinds or [""]:
        found, foreign = _matching(word, abouts), [one for one in of_others() if _has(word, one)]
        if not found and not foreign:
            raise _no_match(word, abouts)
        names += [name for name in found if name not in names]
        others += [one for one in foreign if one not in others]
    lines, speed = [], Speed()
    if names:
        rows = [sizes_of(name, speed) for name in names]
        lines += _described(rows, abouts) if kinds else text_table([_HEAD, *map(_row, rows)], left=(0, 3))
        lines += ["", *textwrap.wrap(speed.note(), WIDTH)]
    if others:
        lines += [*([""] if names else []), "Configs of other programs, with the lines that read them:"]
        lines += [line for one in others for line in _of_other(*one)]
    print("\n".join(lines))
    return 0


def _of_other(name: str, about: str, use: str) -> list[str]:
    """Return the lines about a file of another program."""
    wrapped = textwrap.wrap(f"{name}: {about}", WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False)
    return [*(f"  {line}" for line in wrapped), f"      {use}"]


def _matching(word: str, abouts: Mapping[str, str]) -> list[str]:
    """Return the names of the configs of a kind, or with a string in their name, text or description."""
    if not word:
        return sorted(abouts, key=lambda name: "/" in name)  # the default ones first
    if found := family_configs(word):
        return found
    return [
        name
        for name, about in abouts.items()
        if _has(word, (name, about, *_other_names(name), text_of(name)))
    ]


def _has(word: str, strings: Iterable[str]) -> bool:
    return any(word.lower() in one.lower() for one in strings)


def _other_names(name: str) -> list[str]:
    """Return the names that other programs have for a config."""
    return [theirs for theirs, ours in ALIASES.items() if f"{ours}.py" == name]


def _no_match(word: str, abouts: Mapping[str, str]) -> UserError:
    kinds = sorted({name.partition("/")[0] for name in abouts if "/" in name})
    hint = nearest(word, [*abouts, *kinds, *KINDS])
    return UserError(
        f"[configs] no config has '{word}' in its name, text or description{hint}; the families are: {', '.join(kinds)}"
    )


def _row(one: Sizes) -> tuple[str, ...]:
    text = textwrap.shorten(one.text, _TEXT_WIDTH, placeholder=" ...")
    if one.tokens is None or one.seconds is None:
        return one.name, count_text(one.parameters), "all", text, ""
    return one.name, count_text(one.parameters), count_text(one.tokens), text, duration(one.seconds)


def _described(rows: Sequence[Sizes], abouts: Mapping[str, str]) -> list[str]:
    """Return the table with the description and the other names of each config below its line."""
    head, *table = text_table([_HEAD, *map(_row, rows)], left=(0, 3))
    lines = [head]
    for row, line in zip(rows, table, strict=True):
        also = f" Also: {', '.join(others)}." if (others := _other_names(row.name)) else ""
        wrapped = textwrap.wrap(abouts[row.name] + also, WIDTH - 4, break_on_hyphens=False)
        lines += [line, *(f"    {part}" for part in wrapped)]
    return lines
