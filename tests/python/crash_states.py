"""States that a power cut may leave: a prefix of recorded file calls, with unsynced ones lost, torn or reordered.

A recorded call is (call, path, to, data, offset), as in FaultFiles.log. A write is durable after a later sync of the
file. A creation, removal or rename is durable after a later sync of the folder.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

Call = tuple[str, str, str, bytes, int]
Fate = tuple[bool, int | None]  # whether it is kept; how many bytes of a write are kept
Disk = dict[str, bytes | None]  # path -> bytes; None: a folder
KEPT: Fate = (True, None)
LOST: Fate = (False, None)


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def pending(log: list[Call], count: int) -> list[bool]:
    """Return for each of the first `count` calls True if no later sync among them has made it durable."""
    out = []
    for index, (call, path, _, _, _) in enumerate(log[:count]):
        wanted = ("fsync", path) if call == "write" else ("fsync_dir", _parent(path))
        is_sync = call in ("fsync", "fsync_dir")
        out.append(not is_sync and wanted not in [(later[0], later[1]) for later in log[index + 1 : count]])
    return out


def variants(log: list[Call], count: int, rng: random.Random, samples: int) -> Iterator[list[Fate]]:
    """Yield fates of the first `count` calls: all kept, all lost, each alone lost, kept or torn, and random mixes."""
    unsynced = [index for index, is_open in enumerate(pending(log, count)) if is_open]
    everything = [KEPT] * count
    yield everything
    nothing = list(everything)
    for index in unsynced:
        nothing[index] = LOST
    yield nothing
    for index in unsynced:
        yield [*everything[:index], LOST, *everything[index + 1 :]]
        yield [*nothing[:index], KEPT, *nothing[index + 1 :]]
        if log[index][0] == "write":
            for part in (0, len(log[index][3]) // 2, len(log[index][3]) - 1):
                yield [*everything[:index], (True, part), *everything[index + 1 :]]
    for _ in range(samples if unsynced else 0):
        mixed = list(everything)
        for index in unsynced:
            mixed[index] = (rng.random() < 0.5, rng.choice([None, rng.randint(0, len(log[index][3]))]))
        yield mixed


def replay(log: list[Call], fates: list[Fate], before: Disk) -> Disk:
    """Return the disk after calls with these fates. Bytes belong to the file, even after a rename of it."""
    contents: dict[str, bytearray] = {}
    for (call, path, _, data, offset), (kept, part) in zip(log, fates, strict=False):
        if call == "write" and kept:
            file = contents.setdefault(path, bytearray())
            piece = data if part is None else data[:part]
            file.extend(bytes(max(0, offset + len(piece) - len(file))))
            file[offset : offset + len(piece)] = piece
    disk = dict(before)
    for (call, path, to, _, _), (kept, _) in zip(log, fates, strict=False):
        if not kept:
            continue
        if call == "mkdir":
            disk[path] = None
        elif call == "create":
            disk[path] = bytes(contents.get(path, b""))
        elif call in ("unlink", "rmdir"):
            disk.pop(path, None)
        elif call == "rename":
            disk = {_moved(name, path, to): data for name, data in disk.items()}
        elif call == "exchange":
            disk = {
                _moved(name, path, to) if _within(name, path) else _moved(name, to, path): data
                for name, data in disk.items()
            }
    return disk


def _within(name: str, folder: str) -> bool:
    return name == folder or name.startswith(folder + "/")


def _moved(name: str, path: str, to: str) -> str:
    """Return the name of a file after a rename of path."""
    return to + name[len(path) :] if _within(name, path) else name


def materialise(disk: Disk, base: str, root: Path) -> None:
    """Write the state of everything under `base` to `root`."""
    for path, data in sorted(disk.items()):
        if path.startswith(base + "/"):
            target = root / path[len(base) + 1 :]
            if data is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)


def read_disk(base: Path) -> Disk:
    """Return everything under `base` as it is now, all of it durable."""
    return {str(path): None if path.is_dir() else path.read_bytes() for path in sorted(base.rglob("*"))}
