"""The ranks of a run: processes, or threads of one process, that train one model together."""

from mudd_core.dist.comm import Comm, alone, threads

__all__ = ["Comm", "alone", "threads"]
