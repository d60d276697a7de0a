"""Suggestions, `did you mean`: the closest existing name, or nothing if none is close."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from mudd_core.config.fields import FieldInfo
from mudd_core.config.foreign import NOTES, SETTINGS

FAIR = 0.7  # minimum similarity of a suggestion; `--version` and `precision` have 0.63
_NEAR = 0.1  # bonus for a name in the same section, or for a field


def likeness(one: str, other: str) -> float:
    """Return the similarity of two names in [0, 1]; dashes equal underscores."""
    left, right = (name.lstrip("-").replace("-", "_").lower() for name in (one, other))
    return difflib.SequenceMatcher(None, left, right).ratio()


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest name, or an empty string."""
    return _question(
        max(((likeness(name, one), one) for one in names), default=(0.0, ""), key=lambda x: x[0])
    )


def nearest_field(name: str, infos: Sequence[FieldInfo]) -> str:
    """Return the suggestion for a dotted field: compare its last part with leaves and aliases, then the section."""
    if (known := _setting(name, infos)) is not None:
        return known
    section, _, leaf = name.rpartition(".")
    best = (0.0, "")
    rank = 0.0
    for info in infos:
        place, _, own = info.path.rpartition(".")
        like = max(likeness(leaf, word) for word in (own, *info.flags))
        ranked = like + (_NEAR if section and likeness(section, place) >= FAIR else 0.0)
        if ranked > rank:
            best, rank = (like, info.path), ranked
    return _question(best)


def nearest_option(name: str, infos: Sequence[FieldInfo], options: Iterable[str]) -> str:
    """Return the suggestion for `--name`: leaves and aliases of fields before other options."""
    typed = "--" + name.lstrip("-").replace("_", "-")
    known = _setting(name, infos, dashed=True)
    if known is not None and f"'{typed}'" not in known:
        return known
    plain = name.lstrip("-").replace("-", "_").lower()
    if not infos and plain in NOTES and not SETTINGS[plain]:
        return f"; {NOTES[plain]}"
    leaves = [word for info in infos for word in (info.path.rpartition(".")[2], *info.flags)]
    fields = [(likeness(name, leaf), "--" + leaf.replace("_", "-")) for leaf in leaves]
    others = [(likeness(name, option), option) for option in options]
    ranked = [(like + _NEAR, like, word) for like, word in fields] + [
        (like, like, word) for like, word in others
    ]
    ranked = [found for found in ranked if found[2] != typed]  # excludes the rejected name itself
    _, like, word = max(ranked, default=(0.0, 0.0, ""), key=lambda found: found[0])
    return _question((like, word))


def foreign_name(name: str, infos: Sequence[FieldInfo]) -> str | None:
    """Return the setting of another program in foreign.SETTINGS that a name means; None for other names."""
    plain = name.lstrip("-").replace("-", "_").lower()
    theirs = plain if plain in SETTINGS else plain.replace(".", "_")
    if theirs not in SETTINGS:
        theirs = plain.rpartition(".")[2]  # the last part, as in trainer.max_epochs
    return theirs if theirs in SETTINGS and infos else None  # without fields, a tool has only options


def _setting(name: str, infos: Sequence[FieldInfo], *, dashed: bool = False) -> str | None:
    """Return question and note for another program's setting; empty if it has neither, None for other names."""
    if (theirs := foreign_name(name, infos)) is None:
        return None
    note = f"; {NOTES[theirs]}" if theirs in NOTES else ""
    return (
        f"{_ours(SETTINGS[theirs], infos, dashed=dashed)}{note}{'' if SETTINGS[theirs] else '; leave it out'}"
    )


def _ours(ours: str, infos: Sequence[FieldInfo], *, dashed: bool) -> str:
    """Return the question that suggests a mudd_core field or option; empty for a field that the config lacks."""
    if ours.startswith("--"):
        return _question((1.0, ours))
    leaf = ours.rpartition(".")[2]
    found = [info.path for info in infos if info.path.rpartition(".")[2] == leaf]
    if ours not in found:
        return ""
    # Fields of lora have no short option (overrides.py).
    short = dashed and found == [ours] and not ours.startswith("lora.")
    return _question((1.0, "--" + leaf.replace("_", "-") if short else ours))


def _question(found: tuple[float, str]) -> str:
    return f"; did you mean '{found[1]}'?" if found[0] >= FAIR else ""
