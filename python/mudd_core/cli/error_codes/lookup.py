"""The entry of the table for an error, its text, and the line that offers it on a terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mudd_core.base.errors import SaveError, UserError, is_full_disk, is_full_memory
from mudd_core.base.packages import pages
from mudd_core.base.show.terminal import folded
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.error_codes.kind import FULL_MEMORY, INTERNAL, OWN_FILE, Kind
from mudd_core.cli.error_codes.table import KINDS
from mudd_core.config.own_files import fault_in_own_file
from mudd_core.config.suggest import nearest

_PLACE = re.compile(r"\[([^\]]+)\]")


def kind_of(error: BaseException) -> Kind:
    """Return the entry of an error: by its class, or for a UserError by the place in its message."""
    if is_full_memory(error):
        return _of_class(FULL_MEMORY)
    if is_full_disk(error):
        return _of_class(SaveError.__name__)
    if not hasattr(error, "exit_code") and fault_in_own_file(error):
        return _of_class(OWN_FILE)
    named = {kind.error for kind in KINDS}
    name = next((one.__name__ for one in type(error).__mro__ if one.__name__ in named), INTERNAL)
    place = found[1] if (found := _PLACE.match(str(error))) else ""
    if name == UserError.__name__:
        for kind in KINDS:
            if place in kind.places or place.partition(".")[0] in kind.places:
                return kind
    return _of_class(name)


def _of_class(name: str) -> Kind:
    """Return the entry of a class."""
    return next(
        kind for kind in KINDS if kind.error == name and not (name == UserError.__name__ and kind.places)
    )


def offer(error: BaseException) -> str:
    """Return the line that names the code of an error; empty if the message already has a command to type."""
    if "type: " in str(error):
        return ""
    return f"more: {shlex.join([*typed_program(), f'--explain-error={kind_of(error).code}'])}"


def explained(word: str, others: Sequence[str] = ()) -> str:
    """Return the entries of a code or an exit code; a list of all codes for an empty string.

    Raise UserError for an unknown code, and for arguments after the code. others: the arguments after the code.
    """
    if others:
        line = shlex.join([*typed_program(), f"--explain-error={word}"])
        raise UserError(
            f"[arguments] --explain-error: expected no argument after the code, got {others[0]!r}; type: {line}"
        )
    if not word:
        return "\n".join(f"{kind.code}  exit code {kind.exit_code}  {kind.title}" for kind in KINDS)
    found = [kind for kind in KINDS if word.upper() == kind.code or word == str(kind.exit_code)]
    if not found:
        hint = nearest(word.upper(), [kind.code for kind in KINDS])
        raise UserError(
            f"[arguments] --explain-error: expected a code such as {KINDS[0].code}, got {word!r}{hint}; all codes: "
            f"{shlex.join([*typed_program(), '--explain-error'])}"
        )
    return "\n\n".join(map(text_of, found))


def text_of(kind: Kind) -> str:
    """Return an entry as text for a terminal, with the program that the user typed."""
    remedy = kind.mend.replace("`launch.py ", f"`{shlex.join(typed_program())} ")
    parts = [
        f"{kind.code}: {kind.title} (exit code {kind.exit_code})",
        folded(f"Meaning: {kind.happened}"),
        folded(f"Remedy: {remedy}"),
        folded(f"Kind: {', '.join(marks_of(kind))}"),
        f"Page: {pages() / kind.page}",
    ]
    return "\n".join(parts)


def marks_of(kind: Kind) -> Sequence[str]:
    """Return the class of a kind and the places by which its messages start."""
    return (kind.error, *(f"[{place}]" for place in kind.places))
