"""Plan which rank writes which rows of a state to which file. Every rank computes the same plan from all parts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.ranks import on_all
from mudd_core.checkpoint.state_part import Described, StatePart, described, row_of
from mudd_core.dist import Comm

BALANCE = 1.3  # maximum bytes of a rank, relative to the average
SMALLEST_CUT = 1 << 20  # a tensor is not split below this size to balance the ranks
_NAME_OF_PART = re.compile(r".*@[0-9]+")


@dataclass(frozen=True)
class HeldPart:
    """A part that some ranks have: elements [begin, end) of a tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    holders: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the part."""
        return (self.end - self.begin) * width(self.dtype)

    def halves(self) -> list[HeldPart]:
        """Return the part split into two at a row."""
        row = row_of(self.shape)
        middle = self.begin + (self.end - self.begin) // row // 2 * row
        return [
            HeldPart(self.name, self.dtype, self.shape, begin, end, self.holders)
            for begin, end in ((self.begin, middle), (middle, self.end))
            if begin < end
        ]


@dataclass(frozen=True)
class WritePlan:
    """The files of each rank: files[rank] maps a file's name to the parts that it contains, in order."""

    files: tuple[dict[str, list[HeldPart]], ...]

    @property
    def parts(self) -> list[HeldPart]:
        """All parts that are written."""
        return [part for files in self.files for members in files.values() for part in members]

    def bytes_of(self, rank: int) -> int:
        """Return the number of bytes that the rank writes."""
        return sum(part.bytes for members in self.files[rank].values() for part in members)


def width(dtype: str) -> int:
    """Return the bytes of an element of this safetensors dtype."""
    found = dtypes.numpy_dtype(dtype)
    assert found is not None
    return found.itemsize


def stored_name(name: str, shape: tuple[int, ...], begin: int, end: int) -> str:
    """Return a whole tensor's own name, or `<name>@<first row>` for a part, so that no tool reads it as the whole."""
    return name if end - begin == math.prod(shape) else f"{name}@{begin // row_of(shape)}"


def plan_writes(parts: Sequence[StatePart], shard_bytes: int, comm: Comm | None = None) -> WritePlan:
    """Return the plan. A rank writes the parts that only it has; shared parts are distributed evenly in bytes.

    If whole parts would exceed BALANCE on a rank, the largest parts are split. Raise ValueError if the parts of all
    ranks leave holes, overlap or contradict each other.
    """
    parts_of_ranks = on_all(comm, lambda: [_facts(part) for part in parts])
    held = _held(parts_of_ranks)
    owned = _owners(held, len(parts_of_ranks))
    order = {name: index for index, name in enumerate(dict.fromkeys(part.name for part in held))}
    members = [sorted(mine, key=lambda part: (order[part.name], part.begin)) for mine in owned]
    return WritePlan(_files(members, shard_bytes))


def _facts(part: StatePart) -> Described:
    if _NAME_OF_PART.fullmatch(part.name):
        raise ValueError(
            f"[checkpoint] {part.name}: expected a name that does not end in @NUMBER, the suffix of parts"
        )
    return described(part)


def _held(parts_of_ranks: list[list[Described]]) -> list[HeldPart]:
    """Return the distinct parts of all ranks in their order of appearance; they cover each tensor without overlap."""
    found: dict[tuple[str, int, int], tuple[str, tuple[int, ...], list[int]]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for rank, facts in enumerate(parts_of_ranks):
        for name, dtype, shape, begin, end in facts:
            kind = (dtype, tuple(shape))
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(
                    f"[checkpoint] {name}: expected the same dtype and shape on all ranks, got "
                    f"{_text(*kinds[name])} and {_text(*kind)}"
                )
            if begin < end or math.prod(shape) == 0:
                found.setdefault((name, begin, end), (*kind, []))[2].append(rank)
    held = [
        HeldPart(name, dtype, shape, begin, end, tuple(dict.fromkeys(ranks)))
        for (name, begin, end), (dtype, shape, ranks) in found.items()
    ]
    _check_cover(held, kinds)
    return held


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {shape}"


def _check_cover(held: list[HeldPart], kinds: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    at = dict.fromkeys(kinds, 0)
    for part in sorted(held, key=lambda part: part.begin):
        if part.begin != at[part.name]:
            what = "overlap" if part.begin < at[part.name] else "leave a hole"
            where = min(part.begin, at[part.name])
            raise ValueError(f"[checkpoint] {part.name}: the parts of the ranks {what} at element {where}")
        at[part.name] = part.end
    for name, (_, shape) in kinds.items():
        if at[name] != math.prod(shape):
            raise ValueError(f"[checkpoint] {name}: no rank has the elements from {at[name]} on")


def _owners(held: list[HeldPart], world: int) -> list[list[HeldPart]]:
    """Return the parts that each rank writes."""
    parts = held
    own = [0] * world
    for part in held:
        if len(part.holders) == 1:
            own[part.holders[0]] += part.bytes
    while True:
        owned: list[list[HeldPart]] = [[] for _ in range(world)]
        loads = [0] * world
        for part in sorted(parts, key=lambda part: (len(part.holders) > 1, -part.bytes)):
            rank = min(part.holders, key=loads.__getitem__)
            owned[rank].append(part)
            loads[rank] += part.bytes
        limit = BALANCE * sum(loads) / world
        largest = max((part.bytes for part in parts if _cuttable(part)), default=0)
        if max(loads) <= limit or largest == 0 or max(own) > limit:
            return owned
        parts = [
            half
            for part in parts
            for half in (part.halves() if _cuttable(part) and 2 * part.bytes > largest else [part])
        ]


def _cuttable(part: HeldPart) -> bool:
    rows = (part.end - part.begin) // row_of(part.shape)
    return len(part.holders) > 1 and rows > 1 and part.bytes >= 2 * SMALLEST_CUT


def _files(members: list[list[HeldPart]], shard_bytes: int) -> tuple[dict[str, list[HeldPart]], ...]:
    """Return the files of each rank; each plane has one series of files, numbered over all ranks."""
    planes: dict[str, list[tuple[int, list[HeldPart]]]] = {}
    for rank, mine in enumerate(members):
        sizes: dict[str, int] = {}
        for part in mine:
            plane = part.name.split("/", 1)[0] if "/" in part.name else "model"
            if not plane.isidentifier() or not plane.isascii():
                raise ValueError(
                    f"[checkpoint] {part.name}: expected an identifier before the slash, got {plane!r}"
                )
            files = planes.setdefault(plane, [])
            if plane not in sizes or (files[-1][1] and sizes[plane] + part.bytes > shard_bytes):
                files.append((rank, []))
                sizes[plane] = 0
            sizes[plane] += part.bytes
            files[-1][1].append(part)
    named: tuple[dict[str, list[HeldPart]], ...] = tuple({} for _ in members)
    for plane, files in planes.items():
        for index, (rank, file) in enumerate(files):
            named[rank][f"{plane}-{index + 1:05}-of-{len(files):05}.safetensors"] = file
    return named
