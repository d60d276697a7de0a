"""Nested keys and values, which are merged, read and changed by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudd_core.programs.moe.hydra.values import Node


def deep_copy(tree: Mapping[str, Node]) -> dict[str, Node]:
    """Return a copy that shares no object and no list with the tree."""
    return {key: _copied(value) for key, value in tree.items()}


def _copied(value: Node) -> Node:
    if isinstance(value, dict):
        return deep_copy(value)
    return [_copied(one) for one in value] if isinstance(value, list) else value


def merge(into: dict[str, Node], other: Mapping[str, Node]) -> None:
    """Merge `other` into a tree: objects are merged, other values are replaced."""
    for key, value in other.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merge(old, value)
        else:
            into[key] = _copied(value)


def value_at(tree: Mapping[str, Node], path: Sequence[str]) -> tuple[bool, Node]:
    """Return whether the path exists, and its value."""
    node: Node = dict(tree)
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return False, None
        node = node[key]
    return True, node


def put_at(tree: dict[str, Node], path: Sequence[str], value: Node) -> None:
    """Set the value at the path, merging objects; raise ValueError if the path leads through a value."""
    node = tree
    for i, key in enumerate(path[:-1]):
        child = node.setdefault(key, {})
        if child is None:
            child = node[key] = {}
        if not isinstance(child, dict):
            raise ValueError(f"'{'.'.join(path[: i + 1])}' is {child!r} and has no keys")
        node = child
    merge(node, {path[-1]: value})


def delete_at(tree: dict[str, Node], path: Sequence[str]) -> None:
    """Delete the value at the path, which must exist."""
    node = tree
    for key in path[:-1]:
        child = node[key]
        assert isinstance(child, dict)
        node = child
    del node[path[-1]]


def known_paths(tree: Mapping[str, Node], *, branches: bool = False) -> list[str]:
    """Return the dotted paths of all leaves; with branches, of objects too. Lists are leaves."""
    found = list[str]()
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found += [key] if branches else []
            found += [f"{key}.{below}" for below in known_paths(value, branches=branches)]
        else:
            found.append(key)
    return found


def flat(tree: Mapping[str, Node]) -> dict[str, Node]:
    """Return the leaves by dotted path."""
    return {path: value_at(tree, path.split("."))[1] for path in known_paths(tree)}
