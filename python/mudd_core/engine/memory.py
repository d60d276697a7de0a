"""Memory that this process uses and may still use, and the error for a run that needs more."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text

MIB = 1 << 20
GIB = 1 << 30
PROC = Path("/proc")


def _fields(file: str) -> dict[str, int]:
    """Return the fields of a /proc file in bytes, by name; empty if /proc is not mounted."""
    try:
        lines = (PROC / file).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    parts = [line.split() for line in lines]
    return {part[0].rstrip(":"): int(part[1]) * 1024 for part in parts if part[2:] == ["kB"]}


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; its peak if /proc is not mounted."""
    return _fields("self/status").get("VmRSS") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_bytes() -> int:
    """Return the peak resident memory of this process in bytes.

    Without /proc it may include the parent's memory before exec.
    """
    return _fields("self/status").get("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def file_bytes() -> int:
    """Return the resident bytes mapped from files: programs and libraries, which the processes of a machine share."""
    return _fields("self/status").get("RssFile", 0)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max" means no limit


def _cache_in(folder: Path) -> int:
    """Return the bytes of file cache that a control group can reclaim."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return int(found.get("total_inactive_file", found.get("inactive_file", "0")))


def _group_folders(root: Path, groups: str) -> list[tuple[Path, str, str]]:
    """Return (folder, limit file, usage file) of every control group of this process, parents included."""
    found = []
    for line in groups.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            base, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        while True:
            found.append((folder, *names))
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent
    return found


def available_bytes(root: Path = Path("/sys/fs/cgroup"), groups: str | None = None) -> tuple[int, str]:
    """Return (bytes this process may still use, name of the limit).

    The limit is the free memory, or the tightest control group.
    """
    free = _fields("meminfo").get("MemAvailable")
    if free is None:  # uses free pages without the file cache, which is too low rather than too high
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    best = (free, "free memory")
    if groups is None:
        try:
            groups = (PROC / "self/cgroup").read_text(encoding="ascii")
        except OSError:
            groups = ""
    for folder, limit_name, usage_name in _group_folders(root, groups):
        limit, usage = _number(folder / limit_name), _number(folder / usage_name)
        if limit is not None and usage is not None:
            best = min(
                best, (max(0, limit - usage + _cache_in(folder)), "the memory limit of the control group")
            )
    return best


def mappable_bytes() -> int | None:
    """Return the bytes of address space that this process may still map (ulimit -v); None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return (
        None if limit == resource.RLIM_INFINITY else max(0, limit - _fields("self/status").get("VmSize", 0))
    )


def require_mappable(more: int, what: str, advice: Callable[[int], str]) -> None:
    """Raise UserError if this process may not map `more` bytes. The arguments are as in `require`."""
    have = mappable_bytes()
    if have is not None and more > have:
        raise UserError(
            f"[memory] {what} needs {bytes_text(more)} more, but the limit on address space (ulimit -v) leaves "
            f"{bytes_text(have)}; {advice(have)}"
        )


def require(more: int, what: str, advice: Callable[[int], str] | None = None) -> None:
    """Raise UserError if this process may not use `more` further bytes.

    what: the noun of the message. advice: a function of the available bytes that returns the remedy.
    """
    have, limit = available_bytes()
    if more > have:
        mends = f"; {advice(have)}" if advice is not None else ""
        raise UserError(
            f"[memory] {what} needs {bytes_text(more)} more, but {limit} leaves {bytes_text(have)}{mends}"
        )
