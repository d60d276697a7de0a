"""Starts from other weights, imports and exports by ranks: one tensor in memory at a time, the same numbers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import dist
from mudd_core.checkpoint import whole_parts
from mudd_core.checkpoint.weights_folder import Later, write_folder
from mudd_core.config import Config, TransformerPPConfig
from mudd_core.config.fields import replace_path
from mudd_core.engine.engine import Engine
from mudd_core.run.build.grow import start_from
from mudd_core.run.build.planned_model import cut_of
from rank_runs import config_of, on_ranks

WORLD = 4
MODEL = TransformerPPConfig(d_model=128, n_layer=8, n_head=2, d_ff=512)
LARGEST = 4 * 128 * 512  # bytes of a matrix
WHOLE = 4 * 8 * 128 * (4 * 128 + 3 * 512)  # of the matrices of all blocks


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """A run of one process that is saved with its optimizer's state: config and folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    small: dict[str, Any] = {"model": MODEL, "train.seq_len": 16, "train.steps": 2, "train.save_every": 2}
    config = config_of(tiny_text, **small, **{"data.tokenizer": "bytes", "train.eval_every": 0})
    with mc.Trainer(config, folder) as trainer:
        trainer.fit(progress=False)
        saved = trainer.config
    return saved, folder


@pytest.mark.parametrize("source", ["run", "safetensors"])
def test_a_start_reads_a_tensor_at_a_time(run: tuple[Config, Path], tmp_path: Path, source: str) -> None:
    config, folder = run
    model = mc.load_run(folder).model
    if source == "safetensors":
        write_folder(
            tmp_path / "weights",
            {},
            {n: Later.of(a) for n, a in model.parameters.items()},
            shard_bytes=1 << 30,
        )
    path = folder if source == "run" else tmp_path / "weights"
    asked = {"start.load_parameters_path": str(path), "start.keep_optimizer": source == "run", "mesh.zero": 3}
    for field, value in asked.items():
        config = replace_path(config, field, value)
    engines: dict[int, Engine] = {}

    def planned(comm: dist.Comm) -> None:
        own = mc.Model(model.config, comm=comm, cut=cut_of(model.config, config, comm))
        engines[comm.rank] = Engine(config, own)

    def work(comm: dist.Comm) -> None:
        planned(comm)
        comm.barrier()
        if comm.rank == 0:
            tracemalloc.start()
        comm.barrier()
        start_from(config, engines[comm.rank], engines[comm.rank].model, comm)
        comm.barrier()
        if comm.rank == 0:
            most.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    most: list[int] = []
    with pytest.warns(UserWarning, match="weights only") if source != "run" else nothing():
        on_ranks(work, WORLD, 1)
    assert most[0] < WORLD * 2 * LARGEST + (2 << 20) < WHOLE, most
    found = {(p.name, p.begin): p for engine in engines.values() for p in engine.state_parts()}
    wanted = {part.name: part for part in whole_parts(whole_state(run))}
    for part in found.values():
        if source == "run" or "/" not in part.name:
            same = wanted[part.name].cut(part.begin, part.end).array
            assert np.array_equal(part.array, same), part.name


def whole_state(run: tuple[Config, Path]) -> dict[str, Any]:
    from mudd_core import checkpoint

    return checkpoint.load_step(run[1] / "checkpoints", 2).tensors


@contextmanager
def nothing() -> Iterator[None]:
    yield
