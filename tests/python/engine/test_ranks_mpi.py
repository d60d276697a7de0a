"""Training by ranks under mpirun has the bits of one process; the whole matrix runs as threads (test_ranks.py)."""

from __future__ import annotations

import hashlib
import json

import pytest

from mpi_ranks import mpirun, needs_mpi, window_files
from mudd_core.config import Config, to_dict
from rank_runs import train
from test_expert_ranks import config_of as mixture_of
from test_ranks import FAMILIES, config_of

pytestmark = needs_mpi

PROGRAM = """
import hashlib, json, sys
from mudd_core import dist
from mudd_core.config import from_dict
from rank_runs import joined_weights, train_as

comm = dist.launched(node=sys.argv[2], longest_message=int(sys.argv[3]))
ends = {}
for case, config in json.loads(sys.argv[1]).items():
    done, parts = train_as(comm, from_dict(config))
    state = done.state or joined_weights(comm, parts)
    weights = hashlib.sha256(b"".join(state[name] for name in sorted(state))).hexdigest()
    ends[case] = [done.losses, done.norms, weights]
everybody = comm.all_gather(json.dumps(ends).encode())
assert len(set(everybody)) == 1
comm.close()
if comm.rank == 0:
    print(json.dumps(ends))
    print(json.dumps(comm.counters()))
"""
CUT = str(4 << 16)  # bytes of 2^16 elements
SHORT = str(1 << 14)  # messages, and therefore buckets: a small model has many


def end_of(config: Config) -> list[object]:
    """Return the output of the program for a config, by one process."""
    done = train(config, 1)
    names = sorted(name for name in done.state if "_moment/" not in name)
    return [done.losses, done.norms, hashlib.sha256(b"".join(done.state[n] for n in names)).hexdigest()]


def cases() -> dict[str, Config]:
    """Return every family and precision, and meshes with experts."""
    dense = {
        f"{family} {precision}": config_of(family, precision=precision)
        for family in FAMILIES
        for precision in ("fp32", "bf16")
    }
    mixture = {
        f"experts zero {zero}": mixture_of(expert=2, zero=zero, micro_batch_size=micro)
        for zero, micro in ((1, 0), (3, 1))
    }
    return dense | mixture


@pytest.mark.parametrize(("ranks", "node"), [(2, "host"), (4, "host"), (4, "rank")])
def test_processes_have_the_bits_of_one(ranks: int, node: str) -> None:
    configs = cases()
    # JSON spares the programs the import of torch, which test_ranks has.
    told = json.dumps({case: to_dict(config) for case, config in configs.items()})
    code, out, errors = mpirun(ranks, PROGRAM, told, node, SHORT)
    assert code == 0, errors
    ends = json.loads(out.splitlines()[0])
    for case, config in configs.items():
        assert ends[case] == end_of(config), case
    assert window_files() == []


def test_transfers_cut_at_2_to_the_16_elements_change_no_bit() -> None:
    config = config_of("gpt2", model={"vocab_size": 9000})
    told = json.dumps({"one": to_dict(config)})
    ends, sent = {}, {}
    for longest in (CUT, str(1 << 30)):
        code, out, errors = mpirun(2, PROGRAM, told, "rank", longest)
        assert code == 0, errors
        lines = [json.loads(line) for line in out.splitlines()]
        ends[longest], sent[longest] = lines[0]["one"], lines[1]["gather"]
    assert ends[CUT] == ends[str(1 << 30)] == end_of(config)
    (cut, cut_bytes), (whole, whole_bytes) = sent.values()
    assert cut_bytes == whole_bytes and whole_bytes > whole * (4 << 16), "one message would hold more"
    assert cut > whole and cut_bytes <= cut * (4 << 16)
