"""Interpolation: ${a.b} is the value of a key, and ${resolver:arg,...} is the result of a resolver."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath

from mudd_core.base.bounded_yaml import MOST_BITS
from mudd_core.base.errors import UserError
from mudd_core.config import values
from mudd_core.config.suggest import nearest
from mudd_core.programs.moe.hydra.values import DEEPEST, Node, closing, parse_choices

_PATH = re.compile(r"\.*[^.\[\]:{}$,\s]+(\.[^.\[\]:{}$,\s]+|\[[^\[\]]+\])*")
_RESOLVER = re.compile(r"\s*([A-Za-z_][\w.]*):")
MISSING = "???"
_MOST_STEPS = 20_000  # values and interpolations in a whole tree
_MOST_LETTERS = 65_536  # characters of a resolved string


def _number(name: str, value: Node) -> int | float:
    found = values.number(name, value, strings=False, finite=False)
    return value if isinstance(value, int) else found


def _batch_size(per_device: Node, devices: int) -> Node:
    """Return the number of sequences on all devices together."""
    return _number("get_global_batch_size", per_device) * devices


def _multiply(left: Node, right: Node) -> Node:
    number = _number("multiply", left) * _number("multiply", right)
    if isinstance(number, int) and number.bit_length() > MOST_BITS:
        raise ValueError(f"multiply: expected a number of at most {MOST_BITS} bits, got a larger one")
    return number


def _int_div(left: Node, right: Node) -> Node:
    divisor = _number("int_div", right)
    if divisor == 0:
        raise ValueError("int_div: expected a divisor other than 0")
    return int(_number("int_div", left) // divisor)


def _path_join(*parts: Node) -> Node:
    return str(PurePosixPath(*(str(part) for part in parts)))


RESOLVERS: dict[str, tuple[int, Callable[..., Node]]] = {  # number of arguments (-1: one or more), function
    "get_global_batch_size": (1, partial(_batch_size, devices=1)),
    "path_join": (-1, _path_join),
    "multiply": (2, _multiply),
    "int_div": (2, _int_div),
}


def resolved(tree: dict[str, Node], devices: int = 1) -> dict[str, Node]:
    """Replace every interpolation in the tree by its value; raise UserError that names a key without a value.

    devices: the number of devices that share a global batch.
    """
    found = _Resolver(tree, devices).node(tree, ())
    assert isinstance(found, dict)
    return found


class _Resolver:
    """The resolver of one tree. Paths are tuples of keys from its root."""

    def __init__(self, tree: dict[str, Node], devices: int) -> None:
        self._tree = tree
        self._resolvers = RESOLVERS | {"get_global_batch_size": (1, partial(_batch_size, devices=devices))}
        self._open: list[tuple[str, ...]] = []  # paths that are being resolved, to detect a cycle
        self._steps = self._depth = 0

    def node(self, node: Node, path: tuple[str, ...]) -> Node:
        """Resolve a node and everything below it."""
        self._count(path)
        if isinstance(node, dict):
            return {key: self.node(child, (*path, str(key))) for key, child in node.items()}
        if isinstance(node, list):
            return [self.node(child, (*path, str(i))) for i, child in enumerate(node)]
        if node == MISSING:
            raise UserError(
                f"[hydra] {'.'.join(path)}: expected a value, got {MISSING}; type {'.'.join(path)}=VALUE"
            )
        return self._text(node, path) if isinstance(node, str) else node

    def _count(self, path: tuple[str, ...]) -> None:
        """Raise UserError if the tree needs too many steps, as when values double each time."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise UserError(
                f"[hydra] {'.'.join(path)}: expected at most {_MOST_STEPS} values with interpolations written out, "
                "got more"
            )

    def _text(self, text: str, path: tuple[str, ...]) -> Node:
        if "${" not in text:
            return text
        if path in self._open:
            circle = " -> ".join(".".join(one) for one in (*self._open, path))
            raise UserError(f"[hydra] {'.'.join(path)}: its value depends on itself: {circle}")
        self._open.append(path)
        try:
            return self._parts(text, path)
        except UserError:
            raise
        except (ValueError, ArithmeticError) as error:
            shown = text if len(text) <= 200 else f"{text[:200]}..."
            raise UserError(f"[hydra] {'.'.join(path)}: {shown}: {error}") from None
        finally:
            self._open.pop()

    def _parts(self, text: str, path: tuple[str, ...]) -> Node:
        """Resolve a string: return the value itself if it is one interpolation, else the string with values
        inserted.
        """
        parts, at = list[str](), 0
        while (begin := text.find("${", at)) >= 0:
            before = text[at:begin]
            slashes = len(before) - len(before.rstrip("\\"))
            parts.append(before[: len(before) - slashes] + "\\" * (slashes // 2))
            if slashes % 2:  # \${ is not an interpolation
                parts.append("${")
                at = begin + 2
                continue
            end = closing(text, begin)
            if self._depth == DEEPEST:
                raise ValueError(f"expected at most {DEEPEST} interpolations in one another, got more")
            self._depth += 1
            try:
                self._count(path)
                value = self._interpolation(text[begin + 2 : end - 1], path)
            finally:
                self._depth -= 1
            if begin == 0 and end == len(text):
                return value
            if isinstance(value, dict | list):
                raise ValueError("a list or an object cannot be a part of a string")
            parts.append(str(value))
            if sum(map(len, parts)) > _MOST_LETTERS:
                raise ValueError(f"expected a string of at most {_MOST_LETTERS} letters, got more")
            at = end
        return "".join(parts) + text[at:]

    def _interpolation(self, inner: str, path: tuple[str, ...]) -> Node:
        call = _RESOLVER.match(inner)
        if call is None:
            return self._value_at(inner.strip(), path)
        name = call.group(1)
        if name not in self._resolvers:
            hint = nearest(name, self._resolvers) or f"; expected one of {', '.join(self._resolvers)}"
            raise ValueError(f"unknown resolver '{name}'{hint}")
        wanted, function = self._resolvers[name]
        text = inner[call.end() :]
        values = [self._argument(value, path) for value in parse_choices(text)]
        if len(values) != wanted and (wanted >= 0 or not text.strip()):
            count = str(wanted) if wanted >= 0 else "at least 1"
            raise ValueError(f"{name}: expected {count} arguments, got {len(values) if text.strip() else 0}")
        return function(*values)

    def _argument(self, value: Node, path: tuple[str, ...]) -> Node:
        if isinstance(value, str) and "${" in value:
            return self._parts(value, path)
        if isinstance(value, list):
            return [self._argument(one, path) for one in value]
        return value

    def _value_at(self, name: str, path: tuple[str, ...]) -> Node:
        """Return the resolved value of a key; leading dots make its name relative to `path`."""
        if not _PATH.fullmatch(name):
            raise ValueError(f"expected the name of a key, got '{name}'")
        dots = len(name) - len(name.lstrip("."))
        keys = [key for key in re.split(r"[.\[\]]+", name[dots:]) if key]
        if dots > len(path):
            raise ValueError(f"'{name}' goes above the root")
        full = (*path[: len(path) - dots], *keys) if dots else tuple(keys)
        node: Node = self._tree
        for i, key in enumerate(full):
            if isinstance(node, str):
                node = self._text(node, full[:i])
            if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            elif isinstance(node, dict) and key in node:
                node = node[key]
            else:
                known = list(node) if isinstance(node, dict) else []
                raise ValueError(f"there is no key '{'.'.join(full)}'{nearest(key, known)}")
        return self.node(node, full)
