"""The ranks of a run: shared values, decisions and errors.

All methods are collective: every rank calls the same methods in the same order. In one process they cost only a call.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from mudd_core.base.errors import (
    DivergedError,
    ReportedElsewhereError,
    SaveError,
    StopRequestedError,
    UserError,
    is_full_disk,
    is_full_memory,
)
from mudd_core.config.own_files import fault_in_own_file
from mudd_core.dist import Comm
from mudd_core.run.ranks import rank_cores
from mudd_core.run.ranks.core_kinds import use_fast_cores
from mudd_core.run.ranks.rank_cores import usable_cores

Value = TypeVar("Value")
Packed = TypeVar("Packed")


class Ranks:
    """The ranks of one run; `Ranks()` is a single process. Values must be JSON."""

    def __init__(self, comm: Comm | None = None) -> None:
        self.comm = comm
        self.rank = 0 if comm is None else comm.rank
        self.world = 1 if comm is None else comm.world
        self.first = self.rank == 0  # True on the rank that writes and prints

    @property
    def nodes(self) -> int:
        """The number of nodes. If shared memory is too small, each rank is treated as a separate node."""
        return 1 if self.comm is None else self.comm.nodes

    def threads(self, asked: int) -> int:
        """Return the compute threads of this rank: the requested number, or its part of the fast cores.

        0 leaves the decision to OpenMP. If the CPU has slow cores too, this process is bound to the fast ones.
        """
        on_fast = use_fast_cores(asked)
        if asked or os.environ.get("OMP_NUM_THREADS"):
            return asked
        if self.comm is None or self.world == 1:
            cores = usable_cores()
            # OpenMP counts the cores of mpirun's binding, but does not know the quotas of control groups.
            has_quota = cores < len(os.sched_getaffinity(0))
            return cores if has_quota or on_fast or rank_cores.started_by_mpirun() else 0
        mine = (socket.gethostname(), sorted(os.sched_getaffinity(0)))
        return rank_cores.threads_of_rank(
            mine, [(host, mask) for host, mask in self.gathered(mine)], usable_cores()
        )

    @property
    def text(self) -> str:
        """The number of ranks, for the end of a line about the machine; empty for a single process."""
        if self.comm is None or self.world == 1:
            return ""
        return f"; {self.world} ranks on {self.nodes} node{'s' * (self.nodes > 1)}"

    def barrier(self) -> None:
        """Wait until all ranks have called it."""
        if self.comm is not None and self.world > 1:
            self.comm.barrier()

    def gathered(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in order."""
        if self.comm is None or self.world == 1:
            return [value]
        return [json.loads(one) for one in self.comm.all_gather(json.dumps(value).encode())]

    def any(self, flag: bool) -> bool:
        """Return True if the flag is true on any rank."""
        return flag if self.world == 1 else any(self.gathered(flag))

    def first_given(self, value: Value | None) -> Value | None:
        """Return the value of the lowest rank that has one; None if none has."""
        if self.world == 1:
            return value
        return next((one for one in self.gathered(value) if one is not None), None)

    def together(self, action: Callable[[], Value]) -> Value:
        """Return the action's result on this rank; if it fails on any rank, it fails on all.

        The lowest failed rank raises its own error, and the others raise ReportedElsewhereError.
        """
        if self.world == 1:
            return action()
        failure: Exception | None = None
        try:
            result = action()
        except Exception as error:
            failure = error
        codes = self.gathered(0 if failure is None else exit_code(failure))
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is None:
            return result
        if failure is not None and failed == self.rank:
            raise reported_once(failure)
        raise ReportedElsewhereError(failed, codes[failed])

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Return rank 0's result of `make`, after a JSON round trip, on all ranks; its error ends all ranks."""
        if self.world == 1:
            return make()
        made = self.together(lambda: make() if self.first else None)
        return self.first_given(made)

    def shared(
        self, make: Callable[[], Value], pack: Callable[[Value], Packed], unpack: Callable[[Packed], Value]
    ) -> Value:
        """Do the same as from_first for a value that `pack` converts to JSON and `unpack` restores."""
        return make() if self.world == 1 else unpack(self.from_first(lambda: pack(make())))

    def in_turn(self, action: Callable[[], Value]) -> Value:
        """Run an action that writes files: first on rank 0, then on one rank of each machine, then on all.

        The other ranks then find the files. Return the result of this rank.
        """
        if self.comm is None or self.world == 1:
            return action()
        turns = [self.first, self.comm.node_rank == 0 and not self.first]
        mine = turns.index(True) if True in turns else len(turns)
        result: list[Value] = []

        def act(turn: int) -> None:
            if turn == mine:
                result.append(action())

        for turn in range(len(turns) + 1):
            self.together(partial(act, turn))
        return result[0]

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise UserError on all ranks, with rank, host and fact, if a fact differs from rank 0's."""
        if self.world == 1:
            return
        known = self.gathered({"host": socket.gethostname(), "facts": dict(facts)})
        for rank, other in enumerate(known):
            for name, wanted in known[0]["facts"].items():
                found = other["facts"].get(name)
                if found != wanted:
                    message = (
                        f"[ranks] rank {rank} on {other['host']}: {name}: expected {wanted!r} as on "
                        f"rank 0 ({known[0]['host']}), got {found!r}; start all ranks with the same "
                        "version and environment"
                    )
                    raise (
                        reported_once(UserError(message))
                        if self.first
                        else ReportedElsewhereError(0, UserError.exit_code)
                    )


def reported_once(error: Exception) -> Exception:
    """Return the error, marked as known to all other ranks, which end with ReportedElsewhereError."""
    error.__dict__["known_to_all_ranks"] = True
    return error


def known_to_all(error: BaseException) -> bool:
    """Return True if every rank ends with this error or knows of it. The job may then end in order."""
    known = everybodys(error) or isinstance(error, ReportedElsewhereError)
    return known or "known_to_all_ranks" in error.__dict__


def everybodys(error: BaseException) -> bool:
    """Return True if every rank ends with this error. Then only rank 0 has to report it."""
    return isinstance(error, DivergedError | StopRequestedError)


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error that ends the program."""
    if is_full_memory(error):
        return UserError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    if is_full_disk(error):
        return SaveError.exit_code
    if not hasattr(error, "exit_code") and fault_in_own_file(error):
        return UserError.exit_code
    return int(getattr(error, "exit_code", 70))
