"""The memory of the ranks of a run, as the kernel measures it and as the formula predicts it."""

from __future__ import annotations

import math
from pathlib import Path

from shapes import Shape
from workload import parameter_shapes

# Lines of smaps_rollup, in KiB. A page that n processes map contributes 1/n to Pss.
_FIELDS = ("Rss", "Pss", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty")


def memory_of(process: str) -> dict[str, float]:
    """Return the resident MiB of a process ("self" or its id): rss and pss, and the shared and private parts of rss."""
    kib = dict.fromkeys(_FIELDS, 0)
    for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, value = line.split(":")
        if name in kib:
            kib[name] = int(value.split()[0])
    return {
        "rss": kib["Rss"] / 1024,
        "pss": kib["Pss"] / 1024,
        "shared": (kib["Shared_Clean"] + kib["Shared_Dirty"]) / 1024,
        "private": (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024,
    }


def formula_mib(parameters: int, packed_bytes: int, ranks: int) -> dict[str, float]:
    """Return the MiB of weights, gradients and moments on a node of `ranks` ranks with one copy of the weights.

    docs/parallel.md, Memory, has the formula. packed_bytes: the bytes of the bf16 copies, which the node shares too.
    The result a_rank is one rank's part, without activations.
    """
    mib = 4 * parameters / 2**20
    node = mib + packed_bytes / 2**20 + 2 * mib + ranks * mib
    return {"a_rank": node / ranks, "a_node": node}


def parameters(s: Shape) -> int:
    """Return the number of weights of Transformer++ on a bench shape."""
    return sum(math.prod(sizes) for sizes in parameter_shapes(s, "transformer_pp").values())
