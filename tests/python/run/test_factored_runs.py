"""Runs with optim.second_moment=factored: stops and resumes, ranks, growth, plans, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.cli import main
from mudd_core.config import (
    Config,
    DataConfig,
    MeshConfig,
    OptimConfig,
    StartConfig,
    TokenFormerConfig,
    TrainConfig,
)
from mudd_core.engine import memory
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import ALONE, Place
from own_cases import ADAMW
from rank_runs import config_in_shards, on_ranks
from rank_states import train_between
from small_models import CASES, DEALT
from tiny_run import CONFIG, TinyRun

FACTORED = "optim.second_moment=factored"


def test_a_resumed_run_has_the_bits_of_one(tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.steps=6", "train.save_every=2", "train.eval_every=0", FACTORED)
    whole = TinyRun(tmp_path / "whole", tiny_text, words).finished()
    stopped = TinyRun(tmp_path / "run", tiny_text, (*words, "train.stop_at=3"))
    stopped.stopped()
    again = TinyRun(tmp_path / "run", tiny_text, words)
    again.finished()
    assert again.same_as(whole)
    planes = {file.name.partition("-")[0] for file in (again.checkpoints / "step-6").glob("*.safetensors")}
    assert {"row_moment", "column_moment", "first_moment"} <= planes
    other = TinyRun(tmp_path / "run", tiny_text, words[:3])
    assert other.finish() == 2 and "optim.second_moment" in other.output, other.tail


@pytest.mark.parametrize(
    ("family", "mesh"), [("llama_gqa", {}), ("mixtral", {"expert": 2}), ("mixtral", {"zero": 3})]
)
def test_a_run_through_many_worlds_ends_with_the_bits_of_one(
    memory_path: Path, family: str, mesh: dict[str, Any]
) -> None:
    sizes = {**(DEALT if family == "mixtral" else {}), "vocab_size": 4099}
    model = dataclasses.replace(CASES[family][0], **{"max_seq_len": 16, **sizes})
    one = config_in_shards(model, optim=OptimConfig(lr=3e-3, second_moment="factored"))
    many = dataclasses.replace(one, mesh=MeshConfig(**mesh))

    def steps(
        config: Config, name: str, world: int, begin: int, end: int, node_size: int | None = None
    ) -> str:
        work = lambda comm: train_between(comm, config, memory_path / name, begin, end)  # noqa: E731
        first, *others = on_ranks(work, world, node_size)
        assert all(other == first for other in others)
        return first

    wanted, found = steps(one, "one", 1, 0, 5), ""
    for begin, (world, node_size) in enumerate(((1, 1), (2, 1), (4, 2), (2, 2), (1, 1))):
        found = steps(many if world > 1 else one, "many", world, begin, begin + 1, node_size)
    assert found == wanted
    tensors = read_manifest(memory_path / "many" / "step-3").tensors
    assert tensors["row_moment/embed"].shape == (4099,)
    assert tensors["column_moment/embed"].shape == (model.d_model,)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optim.name=lion"], "expected full for optim.name=lion; only adamw has a factored second moment"),
        ([f"optim.name={ADAMW}"], "only adamw has a factored second moment"),
        (
            ["optim.second_moment_dtype=bf16"],
            "expected fp32 with optim.second_moment=factored, which stores a number for each row and column only",
        ),
        (["optim.second_moment=half"], "expected one of full, factored, got 'half'"),
    ],
)
def test_what_has_no_such_moment_is_named(
    words: list[str], said: str, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    assert main([f"--config={CONFIG}", "--plan", FACTORED, *data, *words]) == 2
    assert said in capsys.readouterr().err
    assert main([f"--config={CONFIG}", "--plan", FACTORED, "optim.name=muon", *data]) == 0


def growing(text: Path, slots: int = 8, second: str = "factored", **start: Any) -> Config:
    return Config(
        name="grow",
        model=TokenFormerConfig(d_model=32, n_layer=1, n_head=2, slot_num=slots),
        data=DataConfig(path=str(text), cache_dir=str(text.parent / "cache"), tokenizer="bytes"),
        train=TrainConfig(steps=4, batch_size=4, seq_len=32, threads=1),
        optim=OptimConfig(second_moment=second),
        start=StartConfig(**start),
    )


def test_moments_are_taken_over_unless_slots_or_forms_differ(tiny_text: Path, tmp_path: Path) -> None:
    for second in ("factored", "full"):
        with mc.Trainer(growing(tiny_text, second=second), tmp_path / second) as trainer:
            trainer.fit()
            state = {name: array.copy() for name, array in trainer.engine.state_tensors().items()}
        kept: dict[str, Any] = {"load_parameters_path": str(tmp_path / second), "keep_optimizer": True}
        with mc.Trainer(growing(tiny_text, second=second, **kept)) as trainer:
            taken = trainer.engine.state_tensors()
            assert all((taken[name] == array).all() for name, array in state.items() if "moment/" in name)
        other = "full" if second == "factored" else "factored"
        with pytest.raises(UserError, match="is missing, because the optimizers differ; set start"):
            mc.Trainer(growing(tiny_text, second=other, **kept))
    kept["load_parameters_path"] = str(tmp_path / "factored")
    with pytest.raises(UserError, match="it has means over the slots, whose number changes; set start"):
        mc.Trainer(growing(tiny_text, slots=20, **kept))


def test_a_plan_has_the_smaller_moments_and_its_advice_offers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # A batch so small that no other setting saves enough.
    small = (
        "model.n_layer=40",
        "model.d_model=256",
        "train.batch_size=1",
        "eval.batch_size=1",
        "train.seq_len=16",
        "train.recompute=true",
        "train.precision=bf16",
    )

    def plan(*words: str, place: Place = ALONE) -> MemoryPlan:
        config = mc.load_config("tiny.py", [*small, *words])
        return MemoryPlan.of(resolved_model(config, 2048), config, place)

    full, factored = plan().bytes(), plan(FACTORED).bytes()
    assert 0.5 < factored["moments"] / full["moments"] < 0.52
    assert factored["weights"] == full["weights"]
    settings = {
        0.90: "optim.moment_dtype=bf16",
        0.80: "optim.moment_dtype=bf16 optim.second_moment_dtype=bf16",
        0.71: "optim.moment_dtype=bf16 optim.second_moment=factored",
    }
    settled = full["weights"] + full["gradients"] + full["moments"]
    spare = sum(full.values()) - settled
    for part, words in settings.items():
        have = int(settled * part) + spare
        monkeypatch.setattr(memory, "available_bytes", lambda have=have: (have, "free memory"))
        with pytest.raises(UserError) as caught:
            plan().require()
        assert f"set {words}" in str(caught.value), (part, str(caught.value))
        plan(*words.split()).require()
    # Of two nodes, one may have the largest matrix alone.
    apart, together = (
        plan(FACTORED, "train.batch_size=4", place=place).bytes()["moments"]
        for place in (Place(2, 1), Place(2, 2))
    )
    assert apart == together + 4 * 2048 * 256
