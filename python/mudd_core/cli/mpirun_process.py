"""mpirun as a process. It ends with this process, its messages are filtered and stored, and its files are removed.

After the cause of the job's end, the filter drops everything that mpirun and the ranks write to stderr.
"""

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
from mudd_core.base.surroundings import PROGRAM, typed_program
from mudd_core.cli.names import CODE_FILE, MPIRUN
from mudd_core.dist.parent import JOB_PROCESS
from mudd_core.dist.siblings import in_session

_KEPT = 1 << 18  # bytes of mpirun's messages that are stored
_PDEATHSIG = 1  # the option of prctl
_MIB = 1 << 20
_FOLDER_BYTES = _MIB  # bytes that mpirun needs in its session folder, at least
# parameters of Open MPI for the session folders
_SESSION_FOLDERS = ("tmpdir_base", "local_tmpdir_base", "remote_tmpdir_base")
_MEMORY = Path("/dev/shm")
AGENT = "OMPI_MCA_plm_rsh_agent"  # Open MPI's variable for another remote shell
_COMM = 15  # Linux truncates process names to this length

_RULE = b"-" * 20  # the start of the lines before and after a block
_OURS = (b"error: ", b"[ranks] ", b"[launch] ")  # prefixes of lines about the end of a job
_LOST = re.compile(rb"exited on signal (?!2\b|15\b)")  # launch.py prints its own line about a lost rank
_FOR_US = b"[ranks] at the end: "  # a line for job_check.py, which learns from it which rank mpirun lost
# a line of a rank that got mpirun's SIGTERM, which mpirun sends at the end of any job
_STOPPED = b"stop requested; "
# A block that only announces another block, and the block about ranks that ended as requested.
_FOLLOWED, _ASKED = b"Primary job  terminated normally", re.compile(rb"Exit code: +75\n")
# Lines without information: a signal that launch.py sent, and memory of a rank that has ended (ESRCH).
_IDLE = re.compile(rb"mpirun: Forwarding signal \d+ to job|\[[^ ]+:\d+\] Read -1, expected \d+, errno = 3$")
_UNSHOWN = re.compile(
    rb"\[[^ ]+:\d+\] .*ORTE_ERROR_LOG: .*show_help\.c"
)  # a block that mpirun could not write completely
_BEGINS = (
    _RULE,
    *_OURS,
    _STOPPED,
    b"mpirun: Forwarding",
    b"[",
)  # prefixes that decide whether a line is shown


class Mpirun:
    """A running mpirun in a separate session: the terminal's Ctrl-C reaches only this process.

    process: of mpirun. last_code: the file for the exit code of the ranks. said: the end of its standard error.
    """

    def __init__(self, argv: Sequence[str], one_host: bool = True) -> None:
        """Start mpirun.

        one_host: all ranks run on this host, so mpirun's session files may be in a folder of this job.
        """
        self._folder = _session_folder()
        self.last_code = Path(self._folder.name) / "code"
        environment = {
            **os.environ,
            CODE_FILE: str(self.last_code),
            MPIRUN: shlex.join(argv),
            JOB_PROCESS: str(os.getpid()),
            PROGRAM: shlex.join(typed_program()),
        }
        if one_host and not any(f"OMPI_MCA_orte_{name}" in environment for name in _SESSION_FOLDERS):
            environment[f"OMPI_MCA_orte_{_SESSION_FOLDERS[0]}"] = self._folder.name
        try:
            self.process = subprocess.Popen(
                argv,
                start_new_session=True,
                env=environment,
                stderr=subprocess.PIPE,
                preexec_fn=end_with_parent(),
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
        self._relay.join(
            1
        )  # a remote shell may outlive mpirun and keep the pipe open, so the wait is limited
        if self.process.stderr is not None and not self._relay.is_alive():
            self.process.stderr.close()
        self._remove_segments()
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    @property
    def said(self) -> str:
        """The last part of the standard error of mpirun and the ranks."""
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
        """Kill remote shells that mpirun left, because they wait for minutes and keep the output open."""
        named = shlex.split(os.environ.get(AGENT, "ssh"))
        for process, name in in_session(self.process.pid):
            if named and name == Path(named[0]).name[:_COMM]:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGTERM)

    def _remove_segments(self) -> None:
        """Remove this job's shared memory files, which remain if mpirun is killed while ranks join."""
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
    """Write to stderr. If stderr is closed, mpirun must still continue."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), data)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _session_folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder for mpirun's files; raise UserError if there is no space."""
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


def end_with_parent() -> Callable[[], None]:
    """Return a function for a new process to call first: SIGTERM is sent to it when this process ends, even by
    SIGKILL.
    """
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def call() -> None:
        prctl(
            _PDEATHSIG,
            ctypes.c_ulong(signal.SIGTERM),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
        )
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(128 + signal.SIGTERM)

    return call


class HelpFilter:
    """Filters a byte stream. `feed` returns the visible part of each piece, and `rest` the remainder at the end."""

    def __init__(self) -> None:
        self._said = False  # True after a line of launch.py or of a rank was shown
        self._line = b""  # the start of a line that may become a rule
        self._begun = False  # True if the start of the line is already shown
        self._block: bytes | None = None  # an unfinished block
        self._empty = b""  # empty lines after such a line, which are shown with the next line

    def feed(self, data: bytes) -> bytes:
        """Return the visible bytes. An incomplete line is shown at once, unless it may become a rule."""
        shown = b""
        for piece in data.splitlines(keepends=True):
            self._line += piece
            if self._line.endswith((b"\n", b"\r")):
                shown += self._line if self._begun else self._take(self._line)
                self._line, self._begun = b"", False
            elif self._block is None and (self._begun or not self._may_decide(self._line)):
                shown += self._empty + self._line
                self._line, self._empty, self._begun = b"", b"", True
        return shown

    def rest(self) -> bytes:
        """Return the bytes that were held back."""
        held, self._block, line, self._line = self._block or b"", None, self._line, b""
        return held + line

    def _take(self, line: bytes) -> bytes:
        """Return the visible bytes once a line is complete."""
        rule = line.startswith(_RULE)
        if self._block is None:
            if rule:
                self._block = line
                return b""
            return self._shown(line)
        self._block += line
        if not rule:
            return b""
        block, self._block = self._block, None
        hidden = self._said or _FOLLOWED in block or _LOST.search(block) or _ASKED.search(block)
        return b"" if hidden else block

    def _shown(self, line: bytes) -> bytes:
        """Return the visible bytes for a line outside blocks, with the empty lines before it."""
        text = line.rstrip()
        if self._said and not text:
            self._empty += line
            return b""
        empty, self._empty = self._empty, b""
        late = self._said and (text.startswith(_STOPPED) or _UNSHOWN.match(text))
        if late or text.startswith(_FOR_US) or _IDLE.match(text):
            return b""
        self._said = self._said or text.startswith(_OURS)
        return empty + line

    def _may_decide(self, line: bytes) -> bool:
        """Return True if the start of a line may become a rule or a line of launch.py."""
        return any(line.startswith(begin[: len(line)]) for begin in _BEGINS)
