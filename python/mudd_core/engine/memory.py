"""Memory: what this process has, what it may still take, and the refusal of a run that needs more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text

MIB = 1 << 20


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def resident_bytes() -> int:
    """Resident memory of this process now."""
    return _status("VmRSS")


def file_bytes() -> int:
    """Resident memory that is mapped from files now: programs and libraries, which processes of a machine share."""
    return _status("RssFile")


def peak_resident_bytes() -> int:
    """Largest resident memory this process has had."""
    return _status("VmHWM")


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": no limit


def _cache_in(folder: Path) -> int:
    """Bytes of file cache that a group gives back when asked."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return int(found.get("total_inactive_file", found.get("inactive_file", "0")))


def _group_folders(root: Path, groups: str) -> list[tuple[Path, str, str]]:
    """(folder, limit file, usage file) of every control group this process is in, parents included."""
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
    """(bytes this process may still take, what sets the limit): free memory or the tightest control group."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
    best = (int(fields["MemAvailable"].split()[0]) * 1024, "free memory")
    if groups is None:
        try:
            groups = Path("/proc/self/cgroup").read_text(encoding="ascii")
        except OSError:
            groups = ""
    for folder, limit_name, usage_name in _group_folders(root, groups):
        limit, usage = _number(folder / limit_name), _number(folder / usage_name)
        if limit is not None and usage is not None:
            best = min(
                best, (max(0, limit - usage + _cache_in(folder)), "the memory limit of the control group")
            )
    return best


def require(more: int, what: str, advice: Callable[[int], str] | None = None) -> None:
    """UserError if `more` bytes are more than this process may still take.

    what: the noun of the message. advice: called with the bytes there are, for what mends it.
    """
    have, limit = available_bytes()
    if more > have:
        mends = f"; {advice(have)}" if advice is not None else ""
        raise UserError(
            f"[memory] {what} needs {bytes_text(more)} more, but {limit} leaves {bytes_text(have)}{mends}"
        )
