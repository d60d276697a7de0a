"""mpirun as a process: it ends with this one, its messages are kept, and its files are removed after a kill."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from mudd_core.base.errors import UserError
from mudd_core.cli.mpirun_help import HelpFilter
from mudd_core.cli.names import CODE_FILE
from mudd_core.dist.parent import JOB_PROCESS
from mudd_core.dist.siblings import in_session

_KEPT = 1 << 18  # bytes of its messages
_PDEATHSIG = 1  # of prctl
_MIB = 1 << 20
_FOLDER_BYTES = _MIB  # that mpirun writes there, at least
_SESSION_FOLDERS = ("tmpdir_base", "local_tmpdir_base", "remote_tmpdir_base")  # parameters of Open MPI
_MEMORY = Path("/dev/shm")
AGENT = "OMPI_MCA_plm_rsh_agent"  # Open MPI's own name for another remote shell
_COMM = 15  # characters that Linux keeps of a process's name


class Mpirun:
    """A running mpirun, in a session of its own: Ctrl-C of the terminal reaches this process alone.

    process: of mpirun. last_code: the file for the exit code of the ranks. said: the end of its standard error.
    """

    def __init__(self, argv: Sequence[str], one_host: bool = True) -> None:
        """Start it. one_host: all ranks run here, so that the files of its session may be in a folder of this job."""
        self._folder = _session_folder()
        self.last_code = Path(self._folder.name) / "code"
        environment = {
            **os.environ,
            CODE_FILE: str(self.last_code),
            JOB_PROCESS: str(os.getpid()),
        }
        if one_host and not any(f"OMPI_MCA_orte_{name}" in environment for name in _SESSION_FOLDERS):
            environment[f"OMPI_MCA_orte_{_SESSION_FOLDERS[0]}"] = self._folder.name
        try:
            self.process = subprocess.Popen(
                argv,
                start_new_session=True,
                env=environment,
                stderr=subprocess.PIPE,
                preexec_fn=_end_with_parent(),
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self._kept = b""
        self._relay = threading.Thread(target=self._pass_on, name="mudd-mpirun", daemon=True)
        self._relay.start()

    def __enter__(self) -> Mpirun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.process.kill()
        self.process.wait()
        self._end_shells()
        self._relay.join(1)  # a remote shell may outlive mpirun and keep the pipe open
        if self.process.stderr is not None and not self._relay.is_alive():
            self.process.stderr.close()
        self._remove_segments()
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    @property
    def said(self) -> str:
        """The end of what mpirun and the ranks wrote to standard error."""
        return self._kept.decode("utf-8", "replace")

    def _pass_on(self) -> None:
        assert self.process.stderr is not None
        number, shown = self.process.stderr.fileno(), HelpFilter()
        with contextlib.suppress(OSError):
            while data := os.read(number, 1 << 16):
                self._kept = (self._kept + data)[-_KEPT:]
                _show(shown.feed(data))
        _show(shown.rest())

    def _end_shells(self) -> None:
        """End the remote shells that mpirun did not end: they wait for minutes and keep the output open."""
        named = shlex.split(os.environ.get(AGENT, "ssh"))
        for process, name in in_session(self.process.pid):
            if named and name == Path(named[0]).name[:_COMM]:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGTERM)

    def _remove_segments(self) -> None:
        """Remove this job's files of shared memory: they are left where mpirun is killed while the ranks join."""
        for contact in Path(self._folder.name).glob("ompi.*/pid.*/contact.txt"):
            found = re.match(r"(\d+)\.0;", _text(contact))
            if found is None:
                continue
            job = f"{int(found[1]) + 1:x}"
            own = re.compile(rf"(vader_segment\..+\.{os.geteuid()}\.{job}\.\d+|osc_sm\..+\.{job}\.\d+\.\d+)")
            for file in _MEMORY.iterdir():
                if own.fullmatch(file.name):
                    with contextlib.suppress(OSError):
                        file.unlink()


def _show(data: bytes) -> None:
    """Write to standard error; one that is closed must not stop mpirun."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), data)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _session_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of this job for mpirun's own files; UserError where there is no room for them."""
    cure = "make room, or name another folder: TMPDIR=/path launch.py ..."
    try:
        folder = tempfile.TemporaryDirectory(prefix="mudd-job-")
    except OSError as error:
        raise UserError(f"[launch] temporary folder: {error.strerror or error}; {cure}") from error
    room = os.statvfs(folder.name)
    free = room.f_bavail * room.f_frsize
    if free < _FOLDER_BYTES:
        folder.cleanup()
        raise UserError(
            f"[launch] {Path(folder.name).parent}: expected {_FOLDER_BYTES // 1024} KiB free for mpirun, got "
            f"{free // 1024} KiB; {cure}"
        )
    return folder


def _end_with_parent() -> Callable[[], None]:
    """What a new process calls first: it gets SIGTERM once this process ends, by SIGKILL too."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def call() -> None:
        prctl(
            _PDEATHSIG,
            ctypes.c_ulong(signal.SIGTERM),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
        )
        if os.getppid() != parent:  # it ended before the call
            os._exit(128 + signal.SIGTERM)

    return call
