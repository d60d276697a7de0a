"""Random mutations of bytes and of JSON trees; a random state always yields the same mutation."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

LONGEST = 2**16  # bytes of an input
DEEP = "@deep@"  # becomes brackets, deeper than json.dumps can write
INTERESTING: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**40,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    -(2**63),
    0.0,
    -0.0,
    0.5,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "a",
    "0",
    "1e5",
    "nan",
    "\x00",
    "\ud800",
    "\u00e9",
    "../x",
    "/",
    "x" * 5000,
    DEEP,
    [],
    {},
    [0],
    [[]],
    {"a": 1},
    ["a", "b"],
)


def change_bytes(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Make one to eight changes of single bytes, digits and ranges."""
    out = bytearray(data)
    for _ in range(1 + draw.randrange(1 << draw.randrange(4))):
        begin = draw.randrange(len(out) + 1)
        end = min(len(out), begin + draw.randrange(1 << draw.randrange(12)))
        kind = draw.randrange(7)
        if kind == 0 and begin < len(out):
            out[begin] ^= 1 << draw.randrange(8)
        elif kind == 1 and begin < len(out):
            out[begin] = draw.randrange(256)
        elif kind == 2:
            del out[begin:end]
        elif kind == 3:
            out[begin:begin] = out[begin:end] * (1 + draw.randrange(3))
        elif kind == 4:
            start = draw.randrange(len(other) + 1)
            out[begin:end] = other[start : start + draw.randrange(1 << draw.randrange(12))]
        elif kind == 5:
            out[begin : begin + 1] = draw.choice(
                [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"\\u", b"-", b"9" * 30, b"\xff", b"NaN"]
            )
        elif draw.randrange(4) == 0:
            del out[begin:]
    return bytes(out[:LONGEST])


def change_json(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Make one to four changes of the JSON tree in `data`, or of its bytes if it is not JSON; sometimes both."""
    try:
        top, donor = {"top": json.loads(data)}, {"top": json.loads(other)}
        for _ in range(1 + draw.randrange(4)):
            _change_node(top, donor, draw)
        text = json.dumps(top["top"], ensure_ascii=bool(draw.randrange(2)))
    except (ValueError, RecursionError):
        return change_bytes(data, other, draw)
    depth = draw.choice([70, 3000])
    text = text.replace(f'"{DEEP}"', "[" * depth + "]" * depth)
    out = text.encode("utf-8", "surrogatepass")[:LONGEST]
    return change_bytes(out, other, draw) if draw.randrange(8) == 0 else out


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) for every value in a tree."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        node = left.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                left.append(node[key])
    return found


def _change_node(top: dict[str, Any], donor: dict[str, Any], draw: random.Random) -> None:
    holder, key = draw.choice(_nodes(top))
    value = holder[key]
    kind = draw.randrange(8)
    if kind <= 1:
        holder[key] = copy.deepcopy(draw.choice(INTERESTING))
    elif kind == 2 and holder is not top:
        del holder[key]
    elif kind == 3:
        given, place = draw.choice(_nodes(donor))
        holder[key] = copy.deepcopy(given[place])
    elif kind == 4 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = value + draw.choice([-1, 1, 0.5, value])
    elif kind == 5:
        holder[key] = draw.choice([[value], {"a": value}, [value, 0], str(value)[:100]])
    elif kind == 6 and isinstance(holder, dict):
        holder[draw.choice([str(draw.choice(INTERESTING))[:2000], f"{key}x", ""])] = copy.deepcopy(value)
    elif kind == 7 and isinstance(value, list) and value:
        part = value[: draw.randrange(len(value)) + 1]
        value.extend(copy.deepcopy(part) for _ in range(draw.choice([1, 1, 20])))
        holder[key] = value[:1000]
