"""Names chosen by patterns: of parameters (train.trainable, optim.groups; by role too), of values inside a model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from mudd_core.base.errors import UserError

_NEAR = 0.5  # least likeness of a name that a message offers


def choose_names(
    selectors: Iterable[str],
    names: Sequence[str],
    field: str,
    roles: Mapping[str, str] | None = None,
    *,
    what: str = "parameter names",
    listed: str = "--params lists all",
) -> list[str]:
    """The names that the selectors choose, in their order.

    selectors: patterns of shells (`*`, `?`, `[ab]`) or, where roles are given, role=<role>; `!` before one excludes. A
    name is chosen if one without `!` matches it (or there is none such) and none with `!` does. UserError for a
    selector that matches nothing: it has the field ("[place] argument"), what the names are, and where they are listed.
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
    """Up to three names like the selector, those of all layers as one; of a role: the roles that there are."""
    if roles and selector.startswith("role="):
        return f"the model has the roles {', '.join(sorted(set(roles.values())))}"
    offered = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
    found = difflib.get_close_matches(re.sub(r"\.\d+\.", ".*.", selector), offered, 3, _NEAR)
    near = f"near names: {', '.join(found)}" if found else f"there are {', '.join(offered[:3])} and more"
    return f"{near} ({listed})"
