"""The memory that --plan predicts for several ranks is the memory that their engines allocate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config.fields import replace_path
from mudd_core.engine import memory
from mudd_core.engine.engine import Engine
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import Place
from mudd_core.run.build.planned_model import cut_of
from rank_runs import on_ranks

SHARED = ("weights", "packed")  # one copy per node


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("world", "on_a_node"), [(2, 2), (4, 4), (2, 1), (4, 2)])
def test_the_plan_of_a_rank_is_what_its_engine_books(world: int, on_a_node: int, precision: str) -> None:
    config = mc.load_config("tiny.py", [f"train.precision={precision}", "train.threads=1"])
    shape = resolved_model(config, 4096)

    def work(comm: Any) -> dict[str, int]:
        model = mc.Model(shape, precision=precision, comm=comm, initialize=False)
        return Engine(config, model).memory_report()

    reports = on_ranks(work, world, on_a_node)
    planned = MemoryPlan.of(shape, config, Place(world, on_a_node)).bytes()
    for kind, count in reports[0].items():
        nodes = world // on_a_node * count if kind in SHARED else sum(report[kind] for report in reports)
        # Slices have unequal sizes if the weights are not divisible.
        assert world * planned[kind] == pytest.approx(nodes, rel=0.02), kind


@pytest.mark.parametrize(("batch", "world"), [(3, 2), (6, 4), (4, 2)])
@pytest.mark.parametrize("family", ["tiny.py", "mixtral/tiny.py", "tokenformer/tiny.py"])
def test_packed_copies_that_another_rank_of_the_node_keeps_are_planned(
    family: str, batch: int, world: int
) -> None:
    # With 2 sequences of 128 tokens weights are packed when they are used; 1 is too short for that.
    words = [f"train.batch_size={batch}", "train.seq_len=128", "train.threads=1"]
    config = mc.load_config(family, words)
    shape = resolved_model(config, 512)

    def work(comm: Any) -> int:
        return Engine(config, mc.Model(shape, comm=comm, initialize=False)).memory_report()["packed"]

    (booked,) = set(on_ranks(work, world))
    planned = MemoryPlan.of(shape, config, Place(world, world)).bytes()
    assert world * planned["packed"] == pytest.approx(booked, abs=world)
    assert booked > 0 or batch % world == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("world", "on_a_node"), [(4, 4), (2, 1), (4, 2)])
def test_the_plan_of_cut_weights_is_what_the_engine_books(world: int, on_a_node: int, precision: str) -> None:
    words = [f"train.precision={precision}", "train.threads=1", "mesh.zero=3"]
    config = mc.load_config("tiny.py", words)
    shape = resolved_model(config, 4096)

    def work(comm: Any) -> dict[str, int]:
        model = mc.Model(
            shape, precision=precision, comm=comm, initialize=False, cut=cut_of(shape, config, comm)
        )
        return Engine(config, model).memory_report()

    reports = on_ranks(work, world, on_a_node)
    planned = MemoryPlan.of(shape, config, Place(world, on_a_node)).bytes()
    shared = {*SHARED} if on_a_node == world else {"packed", "gathered"}
    for kind, count in reports[0].items():
        nodes = world // on_a_node * count if kind in shared else sum(report[kind] for report in reports)
        # Slices have unequal sizes if the weights are not divisible.
        assert world * planned[kind] == pytest.approx(nodes, rel=0.05), kind
    whole = MemoryPlan.of(shape, config).bytes()
    if on_a_node == 1:
        assert planned["weights"] + planned["moments"] < 1.1 * (whole["weights"] + whole["moments"]) / world


@pytest.mark.parametrize(
    ("world", "on_a_node", "zero"), [(4, 4, 1), (4, 2, 1), (4, 1, 3), (4, 2, 3), (4, 4, 3)]
)
def test_the_plan_of_experts_on_ranks_is_what_the_engine_books(world: int, on_a_node: int, zero: int) -> None:
    words = ["train.threads=1", "mesh.expert=2", f"mesh.zero={zero}", "model.d_model=64", "model.d_ff=128"]
    config = mc.load_config("mixtral/tiny.py", words)
    shape = resolved_model(config, 512)

    def work(comm: Any) -> tuple[dict[str, int], dict[str, int]]:
        cut = cut_of(shape, config, comm)
        model = mc.Model(shape, comm=comm, initialize=False, cut=cut, experts=comm.expert_group(2))
        engine = Engine(config, model)
        return engine.memory_report(), engine.expert_report()

    reports = on_ranks(work, world, on_a_node)
    planned = MemoryPlan.of(shape, config, Place(world, on_a_node)).bytes()
    once = {"packed", "gathered", *(SHARED if zero == 1 or on_a_node == world else ())}
    for kind in reports[0][0]:
        own = [experts.get(kind, 0) for _, experts in reports]
        dense = [report[kind] for report, _ in reports]
        all_ranks = sum(dense)
        if kind in once:
            all_ranks = world // on_a_node * (dense[0] - own[0]) + sum(own)
        # Slices have unequal sizes if the weights are not divisible.
        assert world * planned[kind] == pytest.approx(all_ranks, rel=0.05), kind


def test_address_space_that_is_too_small_is_refused_naming_zero_3(monkeypatch: pytest.MonkeyPatch) -> None:
    config, place = mc.load_config("tiny.py", ["model.n_layer=24"]), Place(4, 1)
    shape = resolved_model(config, 4096)
    need = sum(MemoryPlan.of(shape, config, place).bytes().values())
    monkeypatch.setattr(memory, "mappable_bytes", lambda: need - 1)
    with pytest.raises(UserError, match=r"address space \(ulimit -v\).*set mesh.zero=3: it then needs"):
        MemoryPlan.of(shape, config, place).require()
    MemoryPlan.of(shape, replace_path(config, "mesh.zero", 3), place).require()
    monkeypatch.setattr(memory, "mappable_bytes", lambda: need)
    MemoryPlan.of(shape, config, place).require()


def test_the_plan_prints_bytes_of_a_rank_and_of_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*words: str) -> str:
        assert main(["--config=tiny.py", "--plan", f"--workdir={tmp_path / 'none'}", *words]) == 0
        return capsys.readouterr().out

    text = plan("--ranks=4")
    assert "ranks         4 as data 1 x fsdp 4, 4 on a node" in text and "of a node of 4;" in text
    text = plan("--ranks=4", "--hosts=a,b")
    assert "4 as data 1 x fsdp 4, 2 on a node" in text and "2 nodes like this one" in text
    assert "ranks" not in plan()
    assert main(["--config=tiny.py", "--plan", "--ranks=3"]) == 2
    assert "[mesh] 3 ranks do not divide" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ranks_that_do_not_fit_a_node_together_are_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = mc.load_config("tiny.py")
    shape = resolved_model(config, 4096)
    place = Place(4, 4)
    need = 4 * sum(MemoryPlan.of(shape, config, place).bytes().values())
    monkeypatch.setattr(memory, "available_bytes", lambda: (need, "a test"))
    MemoryPlan.of(shape, config, place).require()
    monkeypatch.setattr(memory, "available_bytes", lambda: (need - 1, "a test"))
    with pytest.raises(UserError, match="the training stays the same") as caught:
        MemoryPlan.of(shape, config, place).require()
    assert caught.value.exit_code == 2
