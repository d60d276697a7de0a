"""A test program that imports a folder repeatedly, each time in a child that is killed or has a limit on file sizes.

Usage: killed_imports.py kill|limit SOURCE FOLDER [BYTES ...]. It is a separate process without threads, so that it can
fork. It prints the exit status of each child; child n has the work directory FOLDER/n.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.base.errors import SaveError
from mudd_core.tools.import_weights import command as import_command

_EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}
_WRITES = os.O_WRONLY | os.O_RDWR


def die_before_write(number: int, folder: Path) -> None:
    """Send SIGKILL to this process before its n-th change of a folder."""
    left = number

    def reach() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(name: str, values: tuple[Any, ...]) -> None:
        is_write = name in _EVENTS or (name == "open" and values[2] & _WRITES)
        if is_write and str(values[0]).startswith(str(folder)):
            reach()

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def write(*values: Any, **named: Any) -> Any:
            reach()
            return call(*values, **named)

        return write

    sys.addaudithook(on_event)
    for owner, name in (
        (_core, "replace_file"),
        (_core, "make_folders"),
        (_core.AtomicFolder, "add_shard"),
        (_core.AtomicFolder, "commit"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))


def child(source: str, folder: Path, prepare: Callable[[], None]) -> int:
    """Import in a child process; return its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        prepare()
        try:
            code = import_command.main([source, f"--workdir={folder}"])
        except SaveError as error:
            print(error, file=sys.stderr)
            code = error.exit_code
        sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    sys.dont_write_bytecode = True  # a child would leave half a file
    how, source, folder, *sizes = sys.argv[1:]
    number, code = 0, -1
    if how == "kill":
        while code:
            number += 1
            to = Path(folder) / str(number)
            code = child(source, to, lambda: die_before_write(number, to))  # noqa: B023 - used at once
            print("exit", code, file=sys.stderr)
        return
    for size in map(int, sizes):
        limits = (size, size)
        code = child(
            source,
            Path(folder) / str(size),
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),  # noqa: B023 - used at once
        )
        print("exit", code, file=sys.stderr)


if __name__ == "__main__":
    main()
