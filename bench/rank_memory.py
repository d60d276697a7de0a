"""The memory of the ranks of a run: what the kernel counts, and what the formula says."""

from __future__ import annotations

import math
from pathlib import Path

from shapes import Shape
from workload import parameter_shapes

# Lines of smaps_rollup, in KiB. Pss counts a page that n processes map by 1/n.
_FIELDS = ("Rss", "Pss", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty")


def memory_of(process: str) -> dict[str, float]:
    """Resident MiB of a process ("self" or its id): rss, its pss, and of the rss what is shared and private."""
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
    """MiB of weights, gradients and moments of a node of `ranks`: docs/parallel.md, Memory, one copy of the weights.

    packed_bytes: of the copies in bf16, which the node shares too. a_rank: of which it has a share, not activations.
    """
    mib = 4 * parameters / 2**20
    node = mib + packed_bytes / 2**20 + 2 * mib + ranks * mib
    return {"a_rank": node / ranks, "a_node": node}


def parameters(s: Shape) -> int:
    """Weights of Transformer++ on a bench shape."""
    return sum(math.prod(sizes) for sizes in parameter_shapes(s, "transformer_pp").values())
