"""A YAML loader for config files that limits time and memory before it builds any value."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path

import yaml

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary

MOST_BYTES = 2**18
MOST_NODES = 20_000  # keys, values, lists and objects, counted with every alias expanded
DEEPEST = 64
MOST_BITS = 64  # bits of an integer
FLOAT_TAG = "tag:yaml.org,2002:float"
FLOAT_TEXT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*(?:[eE][-+]?[0-9]+)"
    r"|\.[0-9_]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {_PREFIX + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
# PyYAML's constructors raise these errors for a scalar that does not fit its tag, such as !!int "" or !!bool q.
_SCALAR_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads 1e-5 as a float and dates as strings."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Return the value of a node. Raise YAMLError for a value that no config may have."""
        tag = node.tag.replace(_PREFIX, "!!")
        if node.tag not in _TAGS:
            raise _fault(node, f"expected numbers, strings, lists and objects, got the tag {tag}")
        try:
            value: object = super().construct_object(node, deep)
        except _SCALAR_ERRORS:
            raise _fault(node, f"expected a value of {tag}, got {_short(node)}") from None
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise _fault(node, f"expected a whole number of at most {MOST_BITS} bits, got {_short(node)}")
        return value


_Loader.add_implicit_resolver(FLOAT_TAG, FLOAT_TEXT, list("-+0123456789."))
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, found) for tag, found in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def read_yaml(place: str, path: Path, *, twice: list[str] | None = None) -> tuple[object, str]:
    """Return the value in a file, and its text. Raise UserError with place, file and line if the file is not valid.

    twice: receives the keys that are repeated at the top level; the last value of each is used. None: a repeated key
    is an error.
    """
    try:
        with open_binary(path) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserError(f"{place} {path}: expected at most {MOST_BYTES} bytes, got more")
        text = data.decode("utf-8")
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"expected UTF-8: {error}"
        raise UserError(f"{place} {path}: {reason}") from None
    return parse_yaml(f"{place} {path}", text, twice=twice), text


def parse_yaml(place: str, text: str, *, twice: list[str] | None = None) -> object:
    """Return the value of a string, as read_yaml does for a file."""
    try:
        _require_shallow(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _Sizes().of(node, 0)
        _require_keys(node, twice)
        value: object = loader.construct_document(node)
        return value
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{place}{line}: {reason}") from None


def _fault(at: yaml.Node | yaml.Event, problem: str) -> yaml.YAMLError:
    mark = at.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark if isinstance(mark, yaml.Mark) else None)


def _short(node: yaml.Node) -> str:
    text = str(node.value)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _require_shallow(text: str) -> None:
    """Raise YAMLError for more levels or nodes than a config may have, before PyYAML recurses into them."""
    depth = count = 0
    for event in yaml.parse(text, _Loader):
        count += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        problem = _bound(depth, count)
        if problem:
            raise _fault(event, problem)


def _bound(depth: int, count: int) -> str:
    if depth > DEEPEST:
        return f"expected at most {DEEPEST} levels, got more"
    if count > MOST_NODES:
        return f"expected at most {MOST_NODES} keys and values with aliases written out, got more"
    return ""


class _Sizes:
    """Counts nodes and levels of each node with its aliases expanded, and visits every node once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # id of a node -> nodes, levels
        self._open: set[int] = set()

    def of(self, node: yaml.Node, above: int) -> tuple[int, int]:
        """Return the counts of nodes and levels of a node at depth `above`.

        Raise YAMLError for too many, or for a cycle.
        """
        if id(node) in self._open:
            raise _fault(
                node, "expected an alias (*NAME) of another value, got one inside the value that it names"
            )
        if id(node) not in self._known:
            self._open.add(id(node))
            below = [self.of(child, above + 1) for child in _children(node)]
            self._open.remove(id(node))
            levels = 0 if isinstance(node, yaml.ScalarNode) else 1 + max((one for _, one in below), default=0)
            self._known[id(node)] = 1 + sum(count for count, _ in below), levels
        count, levels = self._known[id(node)]
        if problem := _bound(above + levels, count):
            raise _fault(node, problem)
        return count, levels


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _require_keys(root: yaml.Node, twice: list[str] | None) -> None:
    """Raise YAMLError for a key that is not a scalar, and for a repeated key unless `twice` accepts it."""
    seen, rest = set[int](), [root]
    while rest:
        node = rest.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        rest += _children(node)
        if not isinstance(node, yaml.MappingNode):
            continue
        names = set[Hashable]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault(key, "expected a string as key, got a list or an object")
            if key.value in names and twice is None:
                raise _fault(key, f"key '{key.value}' is given twice")
            if key.value in names and node is root and twice is not None and key.value not in twice:
                twice.append(key.value)
            names.add(key.value)
