"""Create two network namespaces connected by a link of a given rate: two nodes for mpirun on one machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from mudd_core.cli.mpirun import find_mpirun

_NETWORK = "10.77.0.0/24"
_BURST = ("burst", "256kb", "latency", "50ms")


class TwoNodes:
    """Two nodes.

    Raise OSError or CalledProcessError if this process may not create namespaces, or if `ip` is missing.
    """

    hosts = ("10.77.0.1", "10.77.0.2")

    def __init__(self, folder: Path, rate: str = "1gbit") -> None:
        """Create the namespaces.

        folder: for the script that starts the second node. rate: the rate of the link, in the syntax of tc.
        """
        self._agent = folder / "agent.sh"
        self._rate = rate
        self._spaces = (f"mudda{os.getpid()}", f"muddb{os.getpid()}")

    def __enter__(self) -> TwoNodes:
        a, b = self._spaces
        self._agent.write_text(
            f'#!/bin/sh\nshift\nexec ip netns exec {b} unshare --uts sh -c "hostname {b}; $*"\n'
        )
        self._agent.chmod(0o700)
        try:
            for space in self._spaces:
                _ip("netns", "add", space)
            _ip("link", "add", a, "netns", a, "type", "veth", "peer", b, "netns", b)
            for host, space in zip(self.hosts, self._spaces, strict=True):
                _ip("-n", space, "addr", "add", f"{host}/24", "dev", space)
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "link", "set", space, "up")
                shape = ["tc", "qdisc", "add", "dev", space, "root", "tbf", "rate", self._rate, *_BURST]
                _ip("netns", "exec", space, *shape)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for space in self._spaces:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                for process in _ip("netns", "pids", space).split():  # may be a daemon that lost its mpirun
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                _ip("netns", "del", space)

    def inside(self) -> list[str]:
        """Return the arguments that run a program on the first node."""
        return ["ip", "netns", "exec", self._spaces[0]]

    def environment(self) -> dict[str, str]:
        """Return the environment that tells Open MPI about the second node and the link."""
        return {
            "OMPI_MCA_plm_rsh_agent": str(self._agent),
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": _NETWORK,
            "OMPI_MCA_oob_tcp_if_include": _NETWORK,
        }

    def mpirun(self) -> list[str]:
        """Return the arguments that run a program as two ranks of one thread, one on each node."""
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        where = ["-n", "2", "--host", ",".join(f"{host}:1" for host in self.hosts), "--bind-to", "none"]
        mpirun = [find_mpirun(), "--allow-run-as-root", *where, "-x", "OMP_NUM_THREADS=1"]
        return [*self.inside(), "env", *variables, *mpirun]

    def cut(self) -> None:
        """Take the link down on both nodes."""
        _ip("-n", self._spaces[0], "link", "set", self._spaces[0], "down")


def _ip(*words: str) -> str:
    done = subprocess.run(
        ["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout
