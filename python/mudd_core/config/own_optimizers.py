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
from mudd_core.config.optim import OPTIMIZERS, SPECS
from mudd_core.config.own_files import OwnFile, file_of_module, run_own, split_name

KEY = "optim.name"
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
            raise UserError(f"[{KEY}] {own.name}: {name}: expected {w.dtype}{list(w.shape)}, got {found}")
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


def named_optimizer(name: str, text: bytes | None = None) -> OwnOptimizer:
    """Return the optimizer FILE.py:NAME after running its file. text: the bytes of the file; None: read the file."""
    own = run_own(KEY, name, text)
    found = _versions.get((name, own.sha256))
    if found is None:
        file, leaf = split_name(name) or ("", "")
        there = "is not registered" if hasattr(own.module, leaf) else "is missing"
        raise UserError(
            f"[{KEY}] {file}: {leaf} {there}; expected a function {leaf} and mc.register_optimizer({leaf}) after it"
        )
    if _current.get(name) is not found:
        found.enter()
    return found


def run_named_optimizer(name: str) -> None:
    """Run the file of FILE.py:NAME unless it has run already; do nothing for other optimizers."""
    if split_name(name) is not None and name not in SPECS:
        named_optimizer(name)


def own_optimizer(name: str) -> OwnOptimizer | None:
    """Return the user's optimizer of this name; None if there is none."""
    return _current.get(name)


def own_optimizers() -> list[OwnOptimizer]:
    """Return all optimizers that users registered in this process."""
    return list(_current.values())


def name_fault(name: str) -> str | None:
    """Return the error of optim.name=FILE.py:NAME; None if its file has been run, or for a name in another form."""
    if split_name(name) is None or name in SPECS:
        return None
    return (
        f"{KEY}: this config needs the code in {name}, and a command runs only the files that its "
        f"arguments name; add {KEY}={name}"
    )


def slow_note(name: str) -> str:
    """Return a note for the user about the speed of a Python optimizer; empty for an optimizer of the core."""
    if name not in _current:
        return ""
    return (
        f"optim.name={name} is a Python function: its updates take longer than with the optimizers "
        "of the core"
    )
