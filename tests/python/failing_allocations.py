"""A program that fails each small C++ allocation of a constructor once: `python failing_allocations.py LIBRARY`.

LIBRARY is the compiled tests/cpp/failing_new.cc; it must be in LD_PRELOAD. The program prints `NAME: N failed` for each
construction.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import numpy as np

from mudd_core import _core

_MOST = 500  # most allocations of one construction


def failures(countdown: ctypes.c_int, build: Callable[[], object]) -> int:
    """Return how many allocations of a construction failed with MemoryError before one attempt succeeded."""
    build()
    for n in range(_MOST):
        countdown.value = n
        try:
            build()
        except MemoryError:
            assert countdown.value == -1
            continue
        finally:
            left, countdown.value = countdown.value, -1
        assert left >= 0, f"allocation {n} failed without an error"
        return n
    raise AssertionError(f"more than {_MOST} allocations")


def main() -> None:
    """Fail the allocations of each construction in turn."""
    countdown = ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[1]), "new_countdown")
    x = np.ones((2, 3), np.float32)
    (comm,) = _core.thread_ranks(1, 1)
    constructions: dict[str, Callable[[], object]] = {
        "Call": lambda: _core.Call("add", {}, [x, x], [True, True]),
        "Call.custom": lambda: _core.Call.custom(lambda x: x, lambda x, d: d, [x], [True]),
        "Graph": lambda: _core.Graph(training=True, samples=1, shards=1),
        "ParamStore": _core.ParamStore,
        "FaultFiles": _core.testing.FaultFiles,
        "RowRule": lambda: _core.RowRule("next"),
        "UpdateGroup": lambda: _core.UpdateGroup(optimizer="adamw", weight_decay=0.1),
        "NodeGradients": lambda: _core.NodeGradients(comm),
        "CommTimer": lambda: _core.CommTimer(comm, 8),
        "NodeMemory": lambda: _core.NodeMemory(comm),
        "thread_ranks": lambda: _core.thread_ranks(2, 1),
    }
    for name, build in constructions.items():
        print(f"{name}: {failures(countdown, build)} failed", flush=True)


if __name__ == "__main__":
    main()
