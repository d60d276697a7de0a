"""Training by ranks under mpirun has the bits of one process; the whole matrix runs as threads (test_ranks.py)."""

from __future__ import annotations

import hashlib
import json

import pytest

from mpi_ranks import mpirun, needs_mpi, window_files
from rank_runs import train
from test_ranks import FAMILIES, config_of

pytestmark = needs_mpi

PROGRAM = """
import hashlib, json, sys
from mudd_core import dist
from rank_runs import train_as
from test_ranks import config_of

comm = dist.launched()
ends = {}
for case in json.loads(sys.argv[1]):
    done, _ = train_as(comm, config_of(**case))
    weights = hashlib.sha256(b"".join(done.state[name] for name in sorted(done.state))).hexdigest()
    ends[json.dumps(case)] = [done.losses, done.norms, weights]
everybody = comm.all_gather(json.dumps(ends).encode())
assert len(set(everybody)) == 1
comm.close()
if comm.rank == 0:
    print(json.dumps(ends))
"""


def same_weights(case: dict[str, str]) -> list[object]:
    """What the program prints for a case, by one process."""
    done = train(config_of(**case), 1)
    names = sorted(name for name in done.state if "_moment/" not in name)
    return [done.losses, done.norms, hashlib.sha256(b"".join(done.state[n] for n in names)).hexdigest()]


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_have_the_bits_of_one(ranks: int) -> None:
    cases = [{"family": family, "precision": p} for family in FAMILIES for p in ("fp32", "bf16")]
    if ranks == 4:
        cases = [{"family": "mudd", "precision": "fp32"}, {"family": "mixtral", "precision": "bf16"}]
    code, out, errors = mpirun(ranks, PROGRAM, json.dumps(cases))
    assert code == 0, errors
    ends = json.loads(out)
    for case in cases:
        assert ends[json.dumps(case)] == same_weights(case), case
    assert window_files() == []
