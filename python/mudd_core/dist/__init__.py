"""The ranks of a run: processes, or threads of one process, that train one model together."""

from mudd_core.dist.comm import Comm, alone, threads
from mudd_core.dist.launched import launched

__all__ = ["Comm", "alone", "launched", "threads"]
