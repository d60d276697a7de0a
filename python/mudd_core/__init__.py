"""mudd_core: trains language models on CPUs. `import mudd_core as mc`."""

from __future__ import annotations

from mudd_core._core import isa, num_threads, set_num_threads

__all__ = ["isa", "num_threads", "set_num_threads"]
