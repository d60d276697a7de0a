"""Runs with optim.name=row_adagrad: stops and resumes, other ranks, the state of another run, plans."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.config import (
    Config,
    DataConfig,
    GPT2Config,
    MeshConfig,
    OptimConfig,
    StartConfig,
    TrainConfig,
    TransformerPPConfig,
)
from rank_runs import config_in_shards, on_ranks
from rank_states import train_between
from small_models import CASES
from tiny_run import TinyRun

NAME = "row_adagrad"


def test_a_resumed_run_has_the_bits_of_one(tiny_text: Path, tmp_path: Path) -> None:
    words = (
        "train.steps=6",
        "train.save_every=2",
        "train.eval_every=0",
        f"optim.name={NAME}",
        "optim.decay=all",
    )
    whole = TinyRun(tmp_path / "whole", tiny_text, words).finished()
    TinyRun(tmp_path / "run", tiny_text, (*words, "train.stop_at=3")).stopped()
    again = TinyRun(tmp_path / "run", tiny_text, words)
    again.finished()
    assert again.same_as(whole)
    planes = {file.name.partition("-")[0] for file in (again.checkpoints / "step-6").glob("*.safetensors")}
    assert {"row_moment", "row_update", "first_moment"} <= planes


@pytest.mark.parametrize("mesh", [{}, {"zero": 3}])
def test_a_run_through_many_worlds_ends_with_the_bits_of_one(memory_path: Path, mesh: dict[str, Any]) -> None:
    model = dataclasses.replace(CASES["llama_gqa"][0], max_seq_len=16, vocab_size=4099)
    one = config_in_shards(model, optim=OptimConfig(name=NAME, lr=3e-3, decay="all"))
    many = dataclasses.replace(one, mesh=MeshConfig(**mesh))

    def steps(config: Config, name: str, world: int, begin: int, end: int, node_size: int) -> str:
        work = lambda comm: train_between(comm, config, memory_path / name, begin, end)  # noqa: E731
        first, *others = on_ranks(work, world, node_size)
        assert all(other == first for other in others)
        return first

    wanted, found = steps(one, "one", 1, 0, 5, 1), ""
    for begin, (world, node_size) in enumerate(((1, 1), (2, 1), (4, 2), (2, 2), (1, 1))):
        found = steps(many if world > 1 else one, "many", world, begin, begin + 1, node_size)
    assert found == wanted
    tensors = read_manifest(memory_path / "many" / "step-3").tensors
    assert tensors["row_moment/embed"].shape == tensors["row_update/embed"].shape == (4099,)
    assert "first_moment/embed" not in tensors


def run_of(text: Path, optim: dict[str, Any], trainable: str = "", **start: Any) -> Config:
    return Config(
        name="rows",
        model=TransformerPPConfig(d_model=32, n_layer=1, n_head=2, d_ff=64),
        data=DataConfig(path=str(text), cache_dir=str(text.parent / "cache"), tokenizer="bytes"),
        train=TrainConfig(steps=4, batch_size=4, seq_len=32, threads=1, trainable=trainable),
        optim=OptimConfig(**optim),
        start=StartConfig(**start),
    )


ROWS: dict[str, Any] = {"name": NAME}


def test_the_state_of_another_run_is_taken_over_unless_the_optimizers_differ(
    tiny_text: Path, tmp_path: Path
) -> None:
    kept: dict[str, Any] = {"load_parameters_path": str(tmp_path / "rows"), "keep_optimizer": True}
    with mc.Trainer(run_of(tiny_text, ROWS), tmp_path / "rows") as trainer:
        trainer.fit()
        state = {name: array.copy() for name, array in trainer.engine.state_tensors().items()}
    with mc.Trainer(run_of(tiny_text, ROWS, **kept)) as trainer:
        taken = trainer.engine.state_tensors()
        assert all((taken[name] == array).all() for name, array in state.items())
        assert taken["row_update/embed"].max() == 4
    adamw = run_of(tiny_text, {}, **kept)
    factored = run_of(tiny_text, {"second_moment": "factored"}, **kept)
    for other in (adamw, factored):
        with pytest.raises(
            UserError, match=r"'.*/embed' is missing, because the optimizers differ; set start"
        ):
            mc.Trainer(other)
    kept["load_parameters_path"] = str(tmp_path / "adamw")
    with mc.Trainer(run_of(tiny_text, {"second_moment": "factored"}), tmp_path / "adamw") as trainer:
        trainer.fit()
    with pytest.raises(
        UserError, match="'row_update/embed' is missing, because the optimizers differ; set start"
    ):
        mc.Trainer(run_of(tiny_text, ROWS, **kept))


def test_a_table_that_was_frozen_has_no_decay_to_make_up_for(tiny_text: Path, tmp_path: Path) -> None:
    model = GPT2Config(d_model=32, n_layer=1, n_head=2)
    frozen = dataclasses.replace(run_of(tiny_text, ROWS, trainable="!embed"), model=model)
    with mc.Trainer(frozen, tmp_path / "frozen") as trainer:
        trainer.fit()
        state = {name: array.copy() for name, array in trainer.engine.state_tensors().items()}
    assert [name for name in state if name.startswith("row_update/")] == ["row_update/pos_embed"]
    kept: dict[str, Any] = {"load_parameters_path": str(tmp_path / "frozen"), "keep_optimizer": True}
    with mc.Trainer(dataclasses.replace(run_of(tiny_text, ROWS, **kept), model=model)) as trainer:
        taken = trainer.engine.state_tensors()
        assert (taken["row_update/embed"] == 4).all() and not taken["row_moment/embed"].any()
        assert np.array_equal(taken["row_update/pos_embed"], state["row_update/pos_embed"])
        assert taken["row_update/embed"].dtype == np.float32
