"""Starts from other weights, imports and exports by ranks: one tensor at a time in memory, equal values."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import dist, interop
from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.checkpoint import final_hash, whole_parts
from mudd_core.checkpoint.weights_folder import Later, write_folder
from mudd_core.config import Config, TokenFormerConfig, TransformerPPConfig
from mudd_core.config.fields import replace_path
from mudd_core.engine.engine import Engine
from mudd_core.engine.lora import base_names
from mudd_core.engine.state import weight_parts
from mudd_core.run.build.base import load_base
from mudd_core.run.build.grow import start_from
from mudd_core.run.build.planned_model import cut_of
from mudd_core.tools.import_weights import command as import_command
from rank_runs import config_of, on_ranks

WORLD = 4
MODEL = TransformerPPConfig(d_model=128, n_layer=8, n_head=2, d_ff=512)
LARGEST = 4 * 128 * 512  # bytes of a matrix
WHOLE = 4 * 8 * 128 * (4 * 128 + 3 * 512)  # bytes of the matrices of all blocks


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """Return the config and the folder of a run of one process, saved with its optimizer state."""
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
    with pytest.warns(UserWarning, match="only its weights are read") if source != "run" else nothing():
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


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Check that Python's arrays need fewer bytes than this inside the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_an_import_converts_a_tensor_at_a_time(
    run: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mc.load_run(run[1]).model
    write_folder(tmp_path / "hf", *interop.export_original("hf", model), shard_bytes=1 << 30)
    words = [str(tmp_path / "hf"), f"--workdir={tmp_path / 'run'}", "--tokenizer=bytes"]
    made, booked = mc.Model.__init__, []

    def making(model: mc.Model, *args: Any, **more: Any) -> None:
        booked.append(more.get("booked_only", False))
        made(model, *args, **more)

    monkeypatch.setattr(mc.Model, "__init__", making)
    with peak_below(4 * LARGEST + (3 << 20)):
        assert import_command.main(words) == 0
    assert all(booked) and booked and 4 * LARGEST + (3 << 20) < WHOLE
    found = mc.checkpoint.load_step(tmp_path / "run" / "checkpoints", 0).tensors
    moments = {name for name in found if "_moment/" in name}
    assert len(moments) == 2 * len(model.parameters) and not any(found[name].any() for name in moments)
    assert all(np.array_equal(found[name], value) for name, value in model.parameters.items())


def test_a_rank_reads_the_base_of_adapters_a_tensor_at_a_time(run: tuple[Config, Path]) -> None:
    config, folder = run
    for field, value in {
        "tune.method": "lora",
        "start.load_parameters_path": str(folder),
        "mesh.zero": 3,
    }.items():
        config = replace_path(config, field, value)

    def work(comm: dist.Comm) -> tuple[str, list[Any]]:
        shape = mc.load_run(folder).model.config
        model = mc.Model(shape, comm=comm, cut=cut_of(shape, config, comm), lora=config.lora)
        comm.barrier()
        with peak_below(WORLD * 2 * LARGEST + (3 << 20)) if comm.rank == 0 else nothing():
            base = load_base(config, model, None)
            comm.barrier()
        return base.sha256, weight_parts(model.store, base_names(model.store))

    wanted = mc.load_run(folder).model.parameters
    for sha256, parts in on_ranks(work, WORLD, 1):
        assert sha256 == final_hash(whole_parts({**wanted}))
        for part in parts:
            assert np.array_equal(
                part.array.reshape(-1), wanted[part.name].reshape(-1)[part.begin : part.end]
            )


def test_slots_that_would_grow_where_nodes_cut_the_weights_are_refused_before_anything_is_written(
    tiny_text: Path, tmp_path: Path
) -> None:
    slots = TokenFormerConfig(d_model=32, n_layer=1, n_head=2, slot_num=8)
    small: dict[str, Any] = {"model": slots, "train.seq_len": 16, "train.steps": 1, "train.save_every": 1}
    small |= {"data.tokenizer": "bytes", "train.eval_every": 0}
    with mc.Trainer(config_of(tiny_text, **small), tmp_path / "old") as trainer:
        trainer.fit(progress=False)
    write_folder(
        tmp_path / "weights",
        {},
        {name: Later.of(array) for name, array in trainer.model.parameters.items()},
        shard_bytes=1 << 30,
    )

    def start(source: str, node_size: int, **fields: Any) -> list[str]:
        asked = {**small, "start.load_parameters_path": str(tmp_path / source), "mesh.zero": 3, **fields}
        asked["data.cache_dir"] = str(tmp_path / "cache")

        def work(comm: dist.Comm) -> str:
            try:
                with mc.Trainer(config_of(tiny_text, **asked), tmp_path / "new", comm=comm) as trainer:
                    return trainer.fit(progress=False).final_hash
            except (UserError, ReportedElsewhereError) as error:
                return str(error) if comm.rank == 0 else str(error.exit_code)

        return on_ranks(work, 2, node_size)

    for source in ("old", "weights"):
        for fields in ({"model.slot_num": 12}, {"start.load_parameters_path_slot_number": 4}):
            text, code = start(source, 1, **fields)
            assert "slots can grow only if a host has the whole weights: start with mesh.zero=1" in text
            assert code == "2" and not (tmp_path / "new").exists() and not (tmp_path / "cache").exists()
    same = start("old", 1)
    assert len(set(same)) == 1 and len(same[0]) == 64 and (tmp_path / "new" / "summary.json").is_file()
