"""Optimizers of the user's own: functions in Python that take a place in the table of the core's optimizers."""

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
# update(w, g, state, lr, **settings): changes w in place, or gives the new weights.
UpdateFunction: TypeAlias = "Callable[..., Float32 | None]"
_Update = TypeVar("_Update", bound=UpdateFunction)


@dataclass(frozen=True)
class OwnOptimizer:
    """An optimizer of the user's; file: that it is written in, where one was named."""

    name: str
    update: UpdateFunction
    state: tuple[str, ...]
    whole: bool
    settings: dict[str, bool | int | float]
    file: OwnFile | None

    def enter(self) -> None:
        """Take the place of its name in the table."""
        SPECS[self.name] = _core.add_own_optimizer(
            self.name, partial(_checked, self), list(self.state), self.settings, self.whole
        )
        _current[self.name] = self


def _checked(
    own: OwnOptimizer, w: Float32, g: Float32, state: dict[str, Float32], lr: float, **settings: float
) -> Float32:
    """The new weights; UserError where they or the state have another shape or type than w."""
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
_versions: dict[tuple[str, str], OwnOptimizer] = {}  # of files, by name and hash


def register_optimizer(update: _Update, *, state: Sequence[str] = ("m",), whole: bool = False) -> _Update:
    """Make a function known as an optimizer, for optim.name; returns the function.

    update: `update(w, g, state, lr)` on float32 arrays changes w in place or gives the new weights. state: a dict of
    arrays under the given names, one or two, zeros at first, and of the numbers step (from 1), decay (fraction of w to
    take away) and eps. Keyword arguments get the fields optim.<name>. By default the arrays are runs of weights of any
    length, and the update must treat each weight alone; whole: they are the matrices of blocks, and adamw has the rest.
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
        raise ValueError(
            f"[register_optimizer] update: expected a function with a name of its own, got '{full}'"
        )
    own = OwnOptimizer(full, update, names, whole, settings, file)
    own.enter()
    if file is not None:
        _versions[full, file.sha256] = own
    return update


def _settings(update: UpdateFunction) -> dict[str, bool | int | float]:
    """The keyword arguments and their defaults; TypeError for a function of other arguments."""
    wanted = "[register_optimizer] update: expected update(w, g, state, lr)"
    if not callable(update):
        raise TypeError(f"{wanted}, got {type(update).__name__}")
    signature = inspect.signature(update)
    known = {one.field for spec in _core.optimizer_specs() for one in spec.settings}
    try:
        signature.bind(None, None, None, None)
    except TypeError:
        bare = [one.name for one in list(signature.parameters.values())[4:] if one.default is one.empty]
        hint = f"; give {bare[0]} a default number" if bare else ""
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
    """The optimizer FILE.py:NAME, its file run as it is now; text: its bytes, where they come from elsewhere."""
    own = run_own(KEY, name, text)
    found = _versions.get((name, own.sha256))
    if found is None:
        file, leaf = split_name(name) or ("", "")
        there = "is not registered" if hasattr(own.module, leaf) else "is not there"
        raise UserError(
            f"[{KEY}] {file}: {leaf} {there}; expected a function {leaf} and mc.register_optimizer({leaf}) after it"
        )
    if _current.get(name) is not found:
        found.enter()
    return found


def run_named_optimizer(name: str) -> None:
    """Run the file of FILE.py:NAME unless it has been; nothing for the name of another optimizer."""
    if split_name(name) is not None and name not in SPECS:
        named_optimizer(name)


def own_optimizer(name: str) -> OwnOptimizer | None:
    """The optimizer of this name if it is the user's own, else None."""
    return _current.get(name)


def own_optimizers() -> list[OwnOptimizer]:
    """All that are registered in this process."""
    return list(_current.values())


def name_fault(name: str) -> str | None:
    """What is wrong with optim.name=FILE.py:NAME; None for one whose file has been run, and for other names."""
    if split_name(name) is None or name in SPECS:
        return None
    return (
        f"{KEY}: this config needs the code in {name}, and a command runs only files that it names; add "
        f"{KEY}={name}"
    )


def slow_note(name: str) -> str:
    """A line for the user about an optimizer in Python; empty for one of the core."""
    if name not in _current:
        return ""
    return (
        f"optim.name={name} is a function in Python: an update takes longer than one of the core's optimizers"
    )
