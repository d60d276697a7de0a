"""The other ranks that the launcher started on this host, to name one that runs another program."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

_RANK = b"OMPI_COMM_WORLD_RANK="
_LONGEST = 100  # longest command in a message, in characters


def others() -> str:
    """Return the end of a message that lists the ranks of this host with another command line; "" if there are none."""
    commands = _commands()
    mine = commands.get(_own())
    different = [
        f"rank {rank} runs '{shlex.join(argv)[:_LONGEST]}'"
        for rank, argv in sorted(commands.items())
        if argv != mine
    ]
    return f" ({', '.join(different)})" if mine and different else ""


def first() -> bool:
    """Return True if this is the lowest rank of this host with its command line. Only that rank prints."""
    commands = _commands()
    mine = commands.get(_own())
    return mine is None or _own() == min(rank for rank, argv in commands.items() if argv == mine)


def _own() -> int:
    number = os.environ.get("OMPI_COMM_WORLD_RANK", "")
    return int(number) if number.isdecimal() else -1


def _commands() -> dict[int, list[str]]:
    """Return the command lines of the processes with the same parent as this one, by rank."""
    found = {}
    for process in children(os.getppid()):
        folder = Path("/proc", str(process))
        try:
            argv = (folder / "cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        number = next((one[len(_RANK) :] for one in environment if one.startswith(_RANK)), b"")
        if number.isdigit():
            found[int(number)] = argv
    return found


def children(process: int) -> list[int]:
    """Return the children of a process that have not been reaped; empty if the system does not list them."""
    found = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += [int(number) for number in (task / "children").read_text(encoding="ascii").split()]
    except OSError:
        return []
    return found


def in_session(leader: int) -> list[tuple[int, str]]:
    """Return the processes of a session with their names (comm), without its leader; empty without /proc."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = file.read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:
            continue
        process, name = int(file.parent.name), before.partition("(")[2]
        if process != leader and after.split()[3:4] == [str(leader)]:
            found.append((process, name))
    return found
