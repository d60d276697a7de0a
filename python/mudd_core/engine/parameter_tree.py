"""Parameters as a tree of their dotted names; equal blocks are one entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mudd_core import _core

_COLUMN = 44  # column in which the sizes start


@dataclass(frozen=True)
class Leaf:
    """A parameter: a leaf of the tree."""

    shape: tuple[int, ...]
    trained: bool
    stored: str

    @property
    def size(self) -> int:
        """Number of weights."""
        return prod(self.shape)


Tree: TypeAlias = "dict[str, Leaf | Tree]"


def leaves_of(store: _core.ParamStore, trained: Sequence[str] = ()) -> dict[str, Leaf]:
    """Return the parameters of a store by name. trained: the names of the trainable parameters; empty: all of them."""
    kept = set(trained)
    found = {}
    for name in store.names():
        about = store.describe(name)
        trains = about["trainable"] and (not kept or name in kept)
        found[name] = Leaf(tuple(about["shape"]), trains, about["stored"])
    return found


def counted(leaves: Mapping[str, Leaf]) -> str:
    """Return `1,234 parameters, all trained`, or with the trained percentage."""
    total = sum(leaf.size for leaf in leaves.values())
    trained = sum(leaf.size for leaf in leaves.values() if leaf.trained)
    part = "all" if trained == total else f"{trained:,} ({100 * trained / max(total, 1):.3g} %)"
    return f"{total:,} parameters, {part} trained"


def lines_of(leaves: Mapping[str, Leaf]) -> Iterator[str]:
    """Yield one line for each parameter or part: name, shape, size."""
    tree: Tree = {}
    for name, leaf in leaves.items():
        *parts, last = name.split(".")
        place = tree
        for part in parts:
            below = place.setdefault(part, {})
            assert isinstance(below, dict)
            place = below
        place[last] = leaf
    yield from _lines(tree, "  ")


def _lines(tree: Tree, indent: str) -> Iterator[str]:
    is_shown = False  # only the first of several equal blocks is shown in full
    for (_, numbered), group in groupby(tree.items(), key=lambda item: (item[1], item[0].isdigit())):
        names = [name for name, _ in group]
        if numbered:
            yield from _entry(_range(names), tree[names[0]], indent, len(names), is_whole=not is_shown)
            is_shown = True
            continue
        for name in names:
            yield from _entry(name, tree[name], indent)


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"


def _entry(
    name: str, below: Leaf | Tree, indent: str, count: int = 1, is_whole: bool = True
) -> Iterator[str]:
    while not isinstance(below, Leaf) and len(below) == 1 and not next(iter(below)).isdigit():
        (last, below), *_ = below.items()
        name = f"{name}.{last}"
    times = f"{count} x " if count > 1 else ""
    if isinstance(below, Leaf):
        shape = " x ".join(map(str, below.shape))
        notes = [below.stored] * (below.stored != "float32") + ["frozen"] * (not below.trained)
        yield f"{f'{indent}{name} [{shape}]':<{_COLUMN}} {times}{below.size:,}{''.join(f', {n}' for n in notes)}"
        return
    yield f"{f'{indent}{name}':<{_COLUMN}} {times}{_size(below):,}{'' if is_whole else ' ...'}"
    if is_whole:
        yield from _lines(below, indent + "  ")


def _size(tree: Tree) -> int:
    return sum(one.size if isinstance(one, Leaf) else _size(one) for one in tree.values())
