"""User optimizers: Python functions that are added to the core's table of optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.config.optim import OPTIMIZERS, SPECS, OptimConfig, own_in_groups, parse_groups
from mudd_core.config.own_files import OwnFile, file_of_module, name_own, run_own, split_name

KEY = "optim.name"
GROUPS = "optim.groups"  # its groups may name optimizers of one file
# update(w, g, state, lr, **settings): changes w in place, or returns the new weights.
UpdateFunction: TypeAlias = "Callable[..., Float32 | None]"
_Update = TypeVar("_Update", bound=UpdateFunction)


@dataclass(frozen=True)
class OwnOptimizer:
    """A user's optimizer. file: the source file, if the user named one."""

    name: str
    update: UpdateFunction
    state: tuple[str, ...]
    whole: bool
    settings: dict[str, bool | int | float]
    file: OwnFile | None

    def enter(self) -> None:
        """Add the optimizer to the core's table under its name."""
        SPECS[self.name] = _core.add_own_optimizer(
            self.name, partial(_checked, self), list(self.state), self.settings, self.whole
        )
        _current[self.name] = self


def _checked(
    own: OwnOptimizer, w: Float32, g: Float32, state: dict[str, Float32], lr: float, **settings: float
) -> Float32:
    """Return the new weights; raise UserError if they or the state have another shape or dtype than w."""
    made = own.update(w, g, state, lr, **settings)
    made = w if made is None else made
    for name, array in [
        ("new weights", made),
        *((f"state['{name}']", state.get(name)) for name in own.state),
    ]:
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", type(array).__name__)
        if shape != w.shape or dtype != w.dtype:
            found = f"{dtype}{list(shape)}" if shape is not None else str(dtype)
            key = own.file.key if own.file is not None else KEY
            raise UserError(f"[{key}] {own.name}: {name}: expected {w.dtype}{list(w.shape)}, got {found}")
    return made


_current: dict[str, OwnOptimizer] = {}
_versions: dict[tuple[str, str], OwnOptimizer] = {}  # optimizers of files, by name and hash


def register_optimizer(update: _Update, *, state: Sequence[str] = ("m",), whole: bool = False) -> _Update:
    """Register a function as an optimizer for optim.name; return the function.

    update: `update(w, g, state, lr)` on float32 arrays changes w in place or returns the new weights. Its state is a
    dict of the one or two named arrays, initially zero, and the scalars step (from 1), decay (fraction of w to
    subtract) and eps. Its keyword arguments are set from the fields optim.<name>. By default the arrays are parts of
    the weights of any length, so the update must be elementwise. whole: the arrays are whole matrices of blocks; adamw
    updates the other parameters.
    """
    name = str(getattr(update, "__name__", ""))
    settings = _settings(update)
    names = tuple(state)
    if (
        isinstance(state, str)
        or not 1 <= len(names) <= 2
        or not all(str(one).isidentifier() for one in names)
    ):
        raise TypeError(
            f"[register_optimizer] state: expected one or two names, such as ('m', 'v'), got {state!r}"
        )
    file = file_of_module(update.__module__)
    full = f"{file.file}:{name}" if file is not None else name
    if full in OPTIMIZERS or not name.isidentifier():
        raise ValueError(f"[register_optimizer] update: expected a function with a unique name, got '{full}'")
    own = OwnOptimizer(full, update, names, whole, settings, file)
    own.enter()
    if file is not None:
        _versions[full, file.sha256] = own
    return update


def _settings(update: UpdateFunction) -> dict[str, bool | int | float]:
    """Return the keyword arguments and their defaults; raise TypeError for another signature."""
    wanted = "[register_optimizer] update: expected update(w, g, state, lr)"
    if not callable(update):
        raise TypeError(f"{wanted}, got {type(update).__name__}")
    signature = inspect.signature(update)
    known = {one.field for spec in _core.optimizer_specs() for one in spec.settings}
    try:
        signature.bind(None, None, None, None)
    except TypeError:
        bare = [one.name for one in list(signature.parameters.values())[4:] if one.default is one.empty]
        hint = f"; give {bare[0]} a default value" if bare else ""
        raise TypeError(f"{wanted}, got {getattr(update, '__name__', 'it')}{signature}{hint}") from None
    found: dict[str, bool | int | float] = {}
    for one in list(signature.parameters.values())[4:]:
        if one.name not in known or not isinstance(one.default, bool | int | float):
            raise TypeError(
                f"{wanted} and keyword arguments of {', '.join(sorted(known))} with numbers, got '{one}'"
            )
        found[one.name] = one.default
    return found


def named_optimizer(name: str, text: bytes | None = None, key: str = KEY) -> OwnOptimizer:
    """Return the optimizer FILE.py:NAME after running its file. text: the bytes of the file; None: read the file.

    key: the field that names it.
    """
    own = run_own(key, name, text)
    found = _versions.get((name, own.sha256))
    if found is None:
        file, leaf = split_name(name) or ("", "")
        there = "is not registered" if hasattr(own.module, leaf) else "is missing"
        raise UserError(
            f"[{key}] {file}: {leaf} {there}; expected a function {leaf} and mc.register_optimizer({leaf}) after it"
        )
    if _current.get(name) is not found:
        found.enter()
    return found


def names_in(key: str, value: str) -> list[str]:
    """Return the optimizers FILE.py:NAME in the value of a field."""
    if key == GROUPS:
        return own_in_groups(value) if value else []
    return [value] if key == KEY and split_name(value) is not None else []


def name_optimizers(key: str, value: str) -> None:
    """Run the files of the optimizers that a command or a program names in a field."""
    for name in names_in(key, value):
        name_own(key, name)
        named_optimizer(name, key=key)


def run_named_optimizers(optim: OptimConfig) -> None:
    """Run the files of the optimizers FILE.py:NAME of a config unless they have run already."""
    for key, value in ((KEY, optim.name), (GROUPS, optim.groups)):
        for name in names_in(key, value):
            if name not in SPECS:
                named_optimizer(name, key=key)


def own_optimizer(name: str) -> OwnOptimizer | None:
    """Return the user's optimizer of this name; None if there is none."""
    return _current.get(name)


def own_optimizers() -> list[OwnOptimizer]:
    """Return all optimizers that users registered in this process."""
    return list(_current.values())


def name_fault(value: str, key: str = KEY) -> str | None:
    """Return the error of a field that names optimizers FILE.py:NAME; None if their files have been run."""
    missing = [name for name in names_in(key, value) if name not in SPECS]
    if not missing:
        return None
    written = value if key == KEY else f"'{value}'"
    return (
        f"{key}: this config needs the code in {missing[0]}, and a command runs only the files that its "
        f"arguments name; add {key}={written}"
    )


def groups_fault(value: str) -> str | None:
    """Return the error of optim.groups whose optimizers are in several files, or whose file has not been run."""
    files = list(dict.fromkeys(split_name(name) for name in names_in(GROUPS, value)))
    found = list(dict.fromkeys(one[0] for one in files if one is not None))
    if len(found) > 1:
        return f"{GROUPS}: expected the optimizers of one file, got {found[0]} and {found[1]}; write them in one file"
    return name_fault(value, GROUPS)


def second_moment_fault(optim: OptimConfig) -> str | None:
    """Return the error of a bf16 or factored second moment for optimizers that have no such moment."""
    factored = optim.second_moment == "factored"
    if factored and optim.second_moment_dtype != "fp32":
        return (
            f"optim.second_moment_dtype: expected fp32 with optim.second_moment=factored, which stores a number for "
            f"each row and column only, got {optim.second_moment_dtype}; set optim.second_moment_dtype=fp32"
        )
    narrow = optim.second_moment_dtype != "fp32"
    if not (factored or narrow) or name_fault(optim.name) or groups_fault(optim.groups):
        return None
    try:
        named = [optim.name, *(spec.optimizer for spec in parse_groups(optim.groups))]
    except ValueError:  # the fault of optim.groups is reported
        return None
    specs = [SPECS[name] for name in named if name in SPECS]
    specs += [SPECS[spec.rest] for spec in specs if spec.rest]
    if factored:
        if not any(one.field == "second_moment" for spec in specs for one in spec.settings):
            return f"optim.second_moment: expected full for {KEY}={optim.name}; only adamw has a factored second moment"
        return None
    where = "optim.second_moment_dtype: expected fp32"
    for spec in specs:
        if spec.moments > 1 and not spec.narrow_second:
            return f"{where} for the optimizer {spec.name} of your own, whose second array is fp32"
    if all(spec.moments < 2 for spec in specs):
        return f"{where} for {KEY}={optim.name}, which has no second moment"
    return None


def slow_note(optim: OptimConfig) -> str:
    """Return a note for the user about the speed of Python optimizers; empty for the optimizers of the core."""
    used = [spec.optimizer for spec in parse_groups(optim.groups) if spec.optimizer in _current]
    given = [f"{KEY}={optim.name}"] if optim.name in _current else [f"{GROUPS} with {name}" for name in used]
    if not given:
        return ""
    return f"{given[0]} is a Python function: its updates take longer than with the optimizers of the core"
