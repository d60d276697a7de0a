"""The networks between nodes: kinds with assumed speeds, or a measurement of commbench."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.tools.commbench import FILE
from mudd_core.tools.scale.cost import Network

# Assumed bandwidth of bulk transfers over TCP. The latency includes 0.3 ms of mudd_core's exchange (commbench, two
# processes on one machine), because the communication thread sleeps between polls.
_LATENCY = 330e-6
ASSUMED = {
    "1g": Network("1 Gb/s", _LATENCY, 0.12e9),
    "10g": Network("10 GbE", _LATENCY, 1.1e9),
    "25g": Network("25 GbE", _LATENCY, 2.75e9),
    "100g": Network("100 Gb/s", _LATENCY, 11e9),
}


# Accepts 25g, 25G, 25GbE, 25 Gb/s and 25Gbit, but not GB, which means bytes.
_SPELLING = re.compile(r"(\d+) ?[gG]([bB][eE]|b(it|ps|/s|it/s)?)?")


def network_of(text: str) -> Network:
    """Return the network of --net; raise UserError if it is neither a kind nor a commbench file."""
    spelled = _SPELLING.fullmatch(text)
    if spelled and (kind := f"{spelled[1]}g") in ASSUMED:
        return ASSUMED[kind]
    path = local(text, "[scale] --net")
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        raise UserError(f"[scale] --net: expected {', '.join(ASSUMED)} or a file of commbench, got '{text}'")
    return _measured(path)


def _measured(path: Path) -> Network:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        between = found["between_nodes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"[scale] --net: expected a file of commbench, got {path}: {error or 'no object'}"
        ) from None
    if between is None:
        raise UserError(
            f"[scale] --net: {path} was measured on one node; start commbench on two, or with --node=rank"
        )
    try:
        latency, bandwidth = float(between["latency"]), float(between["bandwidth"])
    except (KeyError, TypeError, ValueError):
        latency = bandwidth = -1.0
    if not (0 <= latency < 10 and 1e3 < bandwidth < 1e15):
        raise UserError(
            f"[scale] --net: {path}: expected a latency in seconds and a bandwidth in bytes a second"
        )
    return Network(f"as measured in {path}", latency, bandwidth)
