"""Select names by patterns: parameters (train.trainable, optim.groups; also by role), or values of a model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from mudd_core.base.errors import UserError

_NEAR = 0.5  # minimum similarity of a name that a message suggests


def choose_names(
    selectors: Iterable[str],
    names: Sequence[str],
    field: str,
    roles: Mapping[str, str] | None = None,
    *,
    what: str = "parameter names",
    listed: str = "--params lists all",
) -> list[str]:
    """Return the names that match the selectors, in order.

    selectors: patterns of shells (`*`, `?`, `[ab]`) or, if roles are given, role=<role>; `!` before a selector
    excludes. A name is chosen if a selector without `!` matches it (or no such selector exists) and no selector with
    `!` does. Raise UserError for a selector that matches nothing. The message has the field ("[place] argument"), the
    kind of names, and the command that lists the names.
    """
    wanted: set[str] = set()
    unwanted: set[str] = set()
    all_wanted = True
    for selector in selectors:
        bare = selector.removeprefix("!").strip()
        found = [name for name in names if _matches(name, bare, roles)]
        if not found:
            expected = f"patterns of {what}" + (" or roles of the model" if roles else "")
            near = _near(bare, names, roles, listed)
            raise UserError(f"{field}: expected {expected}, '{bare}' matches none; {near}")
        if selector.startswith("!"):
            unwanted.update(found)
        else:
            all_wanted = False
            wanted.update(found)
    return [name for name in names if (all_wanted or name in wanted) and name not in unwanted]


def _matches(name: str, selector: str, roles: Mapping[str, str] | None) -> bool:
    if roles and selector.startswith("role="):
        return roles[name] == selector.removeprefix("role=")
    return fnmatchcase(name, selector)


def _near(selector: str, names: Sequence[str], roles: Mapping[str, str] | None, listed: str) -> str:
    """Return up to three similar names, with a star for the layer. For a role, return the existing roles."""
    if roles and selector.startswith("role="):
        return f"the model has the roles {', '.join(sorted(set(roles.values())))}"
    offered = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
    found = difflib.get_close_matches(re.sub(r"\.\d+\.", ".*.", selector), offered, 3, _NEAR)
    near = f"similar names: {', '.join(found)}" if found else f"there are {', '.join(offered[:3])} and more"
    return f"{near} ({listed})"
