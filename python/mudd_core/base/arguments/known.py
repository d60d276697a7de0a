"""Errors for unknown arguments and attributes; names of other libraries get the hints of base/other_names.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import CO_VARKEYWORDS, Parameter, Signature, signature
from typing import TYPE_CHECKING, ClassVar, ParamSpec, TypeVar

from mudd_core.base.other_names import ARGUMENTS

P = ParamSpec("P")
R = TypeVar("R")


def known_arguments(name: str, hidden: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator whose TypeError for an unknown keyword argument has the hint of ARGUMENTS[name].

    hidden: parameters that the message does not list, as for public_signature.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            require_known(name, function, kwargs, hidden)
            return function(*args, **kwargs)

        return checked

    return decorate


def public_signature(function: Callable[P, R], hidden: str, **annotations: str) -> Signature:
    """Return the signature of a constructor without self and the hidden parameters (names with blanks between).

    annotations: replacements for annotations with names that are not public.
    """
    shown = [
        parameter.replace(annotation=annotations.get(name, parameter.annotation))
        for name, parameter in signature(function).parameters.items()
        if name != "self" and name not in hidden.split()
    ]
    return Signature(shown, return_annotation=Parameter.empty)


def require_known(name: str, function: Callable[P, R], given: Iterable[str], hidden: str = "") -> None:
    """Raise TypeError for the first keyword argument in `given` that a function does not have.

    For a function with `**fields` only the arguments in ARGUMENTS[name] are unknown.
    """
    while wrapped := getattr(function, "__wrapped__", None):
        function = wrapped
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    fields = bool(code.co_flags & CO_VARKEYWORDS)
    for argument in given:
        if argument not in known and (not fields or argument in ARGUMENTS[name]):
            names = ", ".join(each for each in known if each not in ("self", *hidden.split()))
            listed = f"the arguments are {names}" if names else "it has positional arguments only"
            hint = ARGUMENTS[name].get(argument, listed)
            raise TypeError(f"[{name}] there is no argument '{argument}'; {hint}")


def unknown(owner: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute; for a name of another library, the message has the replacement."""
    hint = f"; {hints[name]}" if name in hints else ""
    return AttributeError(f"[{owner}] there is no '{name}'{hint}")


class _Hinted(type):
    """A metaclass that explains missing attributes of a class, such as Model.from_pretrained."""

    if not TYPE_CHECKING:  # type checkers report missing attributes themselves

        def __getattr__(cls, name):
            raise unknown(cls.__name__, name, type.__getattribute__(cls, "_other_names"))


class Hinted(metaclass=_Hinted):
    """A base class whose table `_other_names` explains missing attributes of the class and of its objects."""

    _other_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise unknown(type(self).__name__, name, type(self)._other_names)
