"""--plan for meshes: the memory of engines with distributed experts, the table of meshes, the nearest mesh that
fits.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.cli import main
from mudd_core.config import Config
from mudd_core.engine import memory
from mudd_core.engine.engine import Engine
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.mesh_search import meshes
from mudd_core.run.build.place import Place
from mudd_core.run.build.planned_model import cut_of
from near import PLANNED
from rank_runs import on_ranks

SIZES = ("model.d_model=64", "model.d_ff=128", "model.n_head=4", "model.n_kv_head=2", "model.n_layer=2")


def mixture(*words: str) -> Config:
    return mc.load_config("mixtral/tiny.py", [*SIZES, "train.threads=1", *words])


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize(("world", "on_a_node"), [(2, 2), (2, 1), (4, 1), (4, 2)])
def test_the_plan_of_experts_on_ranks_is_what_their_engines_book(
    world: int, on_a_node: int, zero: int
) -> None:
    config = mixture("mesh.expert=2", "train.batch_size=8", f"mesh.zero={zero}")
    shape = resolved_model(config, 2048)

    def work(comm: Any) -> dict[str, int]:
        cut = cut_of(shape, config, comm)
        model = mc.Model(shape, comm=comm, initialize=False, experts=comm.expert_group(2), cut=cut)
        return Engine(config, model).memory_report()

    reports = on_ranks(work, world, on_a_node)
    plan = MemoryPlan.of(shape, config, Place(world, on_a_node))
    planned, whole = plan.bytes(), MemoryPlan.of(shape, mixture()).bytes()
    # Dense weights are shared within a node and counted once, but each report contains all of them.
    dense = 4 * (mc.Model(shape, booked_only=True).n_parameters - 2 * 8 * 3 * 64 * 128)
    booked = sum(sum(report.values()) for report in reports)
    if zero == 1 or on_a_node == world:
        booked -= world // on_a_node * (on_a_node - 1) * dense
    booked -= sum(report.get("gathered", 0) for report in reports) * (on_a_node - 1) // on_a_node
    kinds = reports[0].keys()
    assert world * sum(planned[kind] for kind in kinds) == pytest.approx(booked, rel=PLANNED)
    for kind in ("moments", "gradients"):  # not shared within a node
        assert world * planned[kind] == pytest.approx(sum(report[kind] for report in reports), rel=0.02), kind
    assert planned["weights"] < whole["weights"] and (planned.get("exchange", 0) > 0) == (world > on_a_node)
    assert plan.least_bytes() < on_a_node * sum(planned.values())


def test_messages_of_cut_weights_are_planned_as_buckets_and_layers_under_way() -> None:
    config = mc.load_config("tiny.py", ["train.batch_size=8", "mesh.zero=3", "train.micro_batch_size=0"])
    shape = resolved_model(config, 2048)
    planned = MemoryPlan.of(shape, config, Place(4, 1)).bytes()
    buckets = (
        planned["gradients"] - mc.Model(shape, booked_only=True).n_parameters
    )  # 4 bytes each, and a rank has 1/4 of them
    assert 0 < planned["exchange"] - planned["gathered"] <= buckets + 4096


def test_every_built_mesh_is_tried_the_nearest_first() -> None:
    config = mixture("train.batch_size=8")
    tried = [(found.mesh.zero, found.mesh.expert) for found in meshes(config, 4)]
    assert tried == [(1, 1), (1, 2), (1, 4), (3, 1), (3, 2), (3, 4)]
    assert meshes(mc.load_config("tiny.py", ["mesh.fsdp=2", "mesh.data=2"]), 4)[1].mesh.fsdp == 2
    dense = mc.load_config("tiny.py")
    assert [(found.mesh.zero, found.mesh.expert) for found in meshes(dense, 4)] == [(1, 1), (3, 1)]
    assert [found.mesh.zero for found in meshes(dense, 1)] == [1]


def test_the_nearest_mesh_keeps_the_nodes_where_it_can() -> None:
    config = mc.load_config("tiny.py", ["model.n_layer=24"])
    plan = MemoryPlan.of(resolved_model(config, 512), config, Place(4, 1))
    one, three = [choice.node_bytes for choice in plan.choices()]
    assert three < one
    found = plan.nearest(lambda _: three)
    assert found is not None and (found.words, found.place.world) == ("mesh.zero=3", 4)
    further = plan.nearest(lambda _: three - 1)
    assert further is not None and further.place == Place(8, 1) and further.node_bytes < three
    assert plan.nearest(lambda _: 1000) is None


def test_fewer_ranks_a_node_are_tried_before_more_nodes() -> None:
    config = mc.load_config("tiny.py", ["train.batch_size=4"])
    plan = MemoryPlan.of(resolved_model(config, 512), config, Place(4, 4))
    alone = MemoryPlan.of(plan.shape, config).bytes()
    found = plan.nearest(lambda _: sum(alone.values()))
    assert found is not None and (found.words, found.place) == ("mesh.zero=1", Place(1, 1))
    assert "start --ranks=1 and set mesh.zero=1" in plan.advice(plan.bytes(), sum(alone.values()))
    spread = plan.nearest(lambda _: sum(alone.values()) - 1)
    assert spread is not None and spread.place.nodes > 1 and spread.place.on_a_node <= 2
    assert [(place.world, place.on_a_node) for place in Place(8, 3).smaller()] == [(8, 3), (4, 2)]


def test_a_plan_that_does_not_fit_prints_a_command_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        memory, "resident_bytes", lambda: 50 * memory.MIB
    )  # without the memory of the pytest process

    def plan(*words: str) -> str:
        assert main(["--config=tiny.py", "--plan", f"--workdir={tmp_path / 'none'}", *words]) == 0
        return capsys.readouterr().out

    hosts = ("model.n_layer=24", "--ranks=4", "--hosts=a,b,c,d", "--node-memory=0.175")
    text = plan(*hosts)
    assert "mesh.zero=1 " in text and "does not fit <- this plan" in text
    assert "nearest mesh that fits is mesh.zero=3 on 4 ranks, 4 nodes" in text, text
    words = shlex.split(next(line for line in text.splitlines() if "mesh.zero=3 --ranks" in line))
    assert {"mesh.zero=3", "--ranks=4", "--hosts=a,b,c,d", "model.n_layer=24"} <= set(words)
    again = plan(*words[words.index("--config=tiny.py") + 1 :], "--node-memory=0.175")
    assert "DOES NOT FIT" not in again and "buffers of messages to other nodes" in again
    for short in (("--zero=1",), ("--zero", "1"), ("--fsdp=4", "--mesh.zero=1")):
        line = next(line for line in plan(*hosts, *short).splitlines() if "mesh.zero=3 --ranks" in line)
        assert not {"--zero=1", "--zero", "1", "--fsdp=4", "--mesh.zero=1"} & set(shlex.split(line))
    text = plan("model.n_layer=24", "--ranks=4", "--hosts=a,b,c,d", "--node-memory=0.145")
    assert "--ranks=8 --hosts=a,b,c,d,HOST5,HOST6,HOST7,HOST8" in text, text
    assert main(["--config=tiny.py", "--node-memory=4"]) == 2
    assert "--node-memory: expected --plan" in capsys.readouterr().err
    assert main(["--config=tiny.py", "--plan", "--node-memory=0"]) == 2
    assert not list(tmp_path.iterdir())


def test_a_plan_of_one_process_names_the_mesh_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pytest process that has imported torch is larger than this node's 1 GiB.
    monkeypatch.setattr(memory, "resident_bytes", lambda: 50 * memory.MIB)
    text = tmp_path / "t.txt"
    text.write_text("some text\n" * 500)
    words = [
        "--config=small.py",
        "--plan",
        f"data.path={text}",
        "data.tokenizer=bytes",
        f"--workdir={tmp_path}/run",
    ]
    assert main([*words, "train.batch_size=64", "train.seq_len=256", "--node-memory=1"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (at,) = [
        number for number, line in enumerate(lines) if line.startswith("the nearest mesh that fits is mesh.")
    ]
    assert lines.index(next(line for line in lines if line.startswith("DOES NOT FIT: "))) < at
    assert "--ranks=" in lines[at + 1] and "--config=small.py" in lines[at + 1]
    disk = next((number for number, line in enumerate(lines) if line.startswith("disk ")), len(lines))
    assert at < disk
