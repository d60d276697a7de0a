"""The real engine: a checkpoint of one number of ranks resumes with another, with the bits of an unbroken run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from mpi_ranks import mpirun, needs_mpi, window_files
from mudd_core import checkpoint
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.config import Config, OptimConfig, to_dict
from rank_runs import config_in_shards, on_ranks
from rank_states import train_between
from small_models import CASES


def config_of(family: str, **optim: Any) -> Config:
    model = dataclasses.replace(CASES[family][0], vocab_size=4099, max_seq_len=16)
    return config_in_shards(model, optim=OptimConfig(lr=3e-3, **optim))


def steps(
    config: Config, folder: Path, world: int, begin: int, end: int, node_size: int | None = None
) -> str:
    """Do the same as rank_states.train_between, with ranks that are threads."""
    first, *others = on_ranks(lambda comm: train_between(comm, config, folder, begin, end), world, node_size)
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize(
    ("family", "optim"),
    [
        ("llama_gqa", {}),
        ("llama_gqa", {"name": "muon"}),
        ("llama_gqa", {"name": "lion", "moment_dtype": "bf16"}),
        ("mixtral", {}),
        ("mudd", {}),
        ("mudd_experts", {}),
    ],
)
def test_a_run_through_many_worlds_ends_with_the_bits_of_one(
    memory_path: Path, family: str, optim: dict[str, Any]
) -> None:
    config = config_of(family, **optim)
    wanted = steps(config, memory_path / "one", 1, 0, 5)
    found = ""
    for begin, world in enumerate((1, 2, 4, 2, 1)):
        found = steps(config, memory_path / "many", world, begin, begin + 1)
    assert found == wanted
    cut = read_manifest(memory_path / "many" / "step-3")
    assert cut.world == 4 and any(len(tensor.slices) > 1 for tensor in cut.tensors.values())
    assert all(len(tensor.slices) == 1 for name, tensor in cut.tensors.items() if "/" not in name)


@pytest.mark.parametrize("family", ["llama_gqa", "mixtral"])
def test_weights_that_stand_on_every_node_are_saved_once_and_read_on_each(
    memory_path: Path, family: str
) -> None:
    config = config_of(family)
    wanted = steps(config, memory_path / "one", 1, 0, 4)
    found = ""
    for begin, (world, node_size) in enumerate(((4, 2), (2, 1), (4, 4), (4, 1))):
        found = steps(config, memory_path / "many", world, begin, begin + 1, node_size)
    assert found == wanted
    sizes = [
        sum(file.stat().st_size for file in (memory_path / name / "step-4").glob("*.safetensors"))
        for name in ("one", "many")
    ]
    assert sizes[1] < 1.2 * sizes[0]  # more files have more headers, but no tensor is saved twice


PROGRAM = """
import json, os, resource, sys

told = json.loads(sys.argv[1])
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if told.get("kill", [None])[0] == rank:
    os.environ["MUDD_KILL_AT"] = told["kill"][1]

from pathlib import Path
from mudd_core import dist
from mudd_core.base.errors import SaveError
from mudd_core.config import from_dict
from rank_states import train_between

if told.get("full") == rank:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
comm = dist.launched()
try:
    end = train_between(comm, from_dict(told["config"]), Path(told["folder"]), told["begin"], told["end"])
except SaveError as error:
    end = str(error)
everybody = comm.all_gather(end.encode())
comm.close()
if rank == 0:
    print(json.dumps([one.decode() for one in everybody]))
"""


def processes(config: Config, folder: Path, begin: int, end: int, **more: Any) -> tuple[int, list[str]]:
    """Run two ranks as processes. Return the exit code and the result of each."""
    told = {"config": to_dict(config), "folder": str(folder), "begin": begin, "end": end, **more}
    code, out, _ = mpirun(2, PROGRAM, json.dumps(told))
    return code, json.loads(out) if code == 0 else []


@needs_mpi
def test_processes_go_on_from_threads_and_threads_from_processes(memory_path: Path) -> None:
    config = config_of("llama_gqa")
    wanted = steps(config, memory_path / "one", 1, 0, 3)
    steps(config, memory_path / "many", 4, 0, 1)
    code, ends = processes(config, memory_path / "many", 1, 2)
    assert code == 0 and ends[0] == ends[1]
    assert steps(config, memory_path / "many", 1, 2, 3) == wanted


@needs_mpi
def test_a_full_disk_of_one_rank_is_a_failed_save_of_all(memory_path: Path) -> None:
    config = config_of("llama_gqa")
    steps(config, memory_path, 2, 0, 1)
    code, ends = processes(config, memory_path, 1, 2, full=1)
    assert code == 0 and ends[0] == ends[1] and "step 2 could not be saved" in ends[0]
    assert "File too large" in ends[0]
    assert [path.name for path in memory_path.iterdir()] == ["step-1"]


@needs_mpi
@pytest.mark.parametrize(
    ("rank", "point", "newest"),
    [
        (1, "after_block:3", 1),
        (1, "after_shard_write", 1),
        (1, "after_shard_sync:2", 1),
        (0, "after_mkdir", 1),
        (0, "after_manifest", 1),
        (0, "before_rename", 1),
        (0, "after_rename", 2),
    ],
)
def test_a_kill_of_one_rank_in_a_save_ends_the_job_and_harms_nothing(
    memory_path: Path, rank: int, point: str, newest: int
) -> None:
    config = config_of("llama_gqa")
    wanted = steps(config, memory_path / "one", 1, 0, 3)
    steps(config, memory_path / "many", 2, 0, 1)
    code, _ = processes(config, memory_path / "many", 1, 2, kill=[rank, point])
    assert code == 137
    checkpoint.recover(memory_path / "many")
    assert checkpoint.list_steps(memory_path / "many") == [1, newest][:newest]
    assert steps(config, memory_path / "many", 2, newest, 3) == wanted
    assert window_files() == []
