"""The mesh: the division of a world into axes, and every mesh that is rejected before anything is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import mudd_core as mc
from fake_runs import config_of, make
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import config_hash, from_dict, mesh_of, to_dict
from mudd_core.config.fields import replace_path


def refusal(world: int, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        mesh_of(mc.load_config("tiny.py", words), world)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "world", "data", "fsdp"),
    [
        ((), 1, 1, 1),
        ((), 8, 1, 8),
        (("train.logical_shards=1024", "train.batch_size=1024"), 64, 1, 64),
        (("train.logical_shards=1024", "train.batch_size=1024"), 256, 4, 64),
        (("train.logical_shards=1024", "train.batch_size=1024", "mesh.any_world=true"), 201, 67, 3),
        (("mesh.data=2",), 8, 2, 4),
        (("mesh.fsdp=2",), 8, 4, 2),
        (("mesh.fsdp=2", "mesh.data=4"), 8, 4, 2),
        (("mesh.any_world=true",), 6, 1, 6),
        (("mesh.any_world=true",), 7, 1, 7),
    ],
)
def test_what_is_left_goes_to_fsdp_first_and_then_to_data(
    words: tuple[str, ...], world: int, data: int, fsdp: int
) -> None:
    found = mesh_of(mc.load_config("tiny.py", words), world)
    assert (found.data, found.fsdp, found.world) == (data, fsdp, world)


def test_zero_2_is_refused_with_its_figure() -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", ["mesh.zero=2"])
    assert str(caught.value) == (
        "[mesh] zero=2 is not implemented: compared with zero=1 it saves 4 bytes per parameter and "
        "costs a reduce-scatter of the gradients in each graph run; use mesh.zero=1, or "
        "mesh.zero=3, which shards weights, too (docs/parallel.md)"
    )
    assert mc.load_config("tiny.py", ["mesh.zero=3"]).mesh.zero == 3


@pytest.mark.parametrize("axis", ["pipeline", "context"])
def test_axes_of_part_two_are_refused_by_name(axis: str) -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", [f"mesh.{axis}=2"])
    assert f"[mesh] {axis}=2: " in str(caught.value) and f"; use mesh.{axis}=1 mesh.fsdp=-1" in str(
        caught.value
    )
    with pytest.raises(UserError, match=f"use mesh.{axis}=1 mesh.fsdp=8"):
        mc.load_config("tiny.py", [f"mesh.{axis}=4", "mesh.fsdp=2"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tiny.py",), "[mesh] expert=2: transformer_pp has no experts; use mesh.expert=1 mesh.fsdp=-1"),
        (
            ("MIX", "model.n_expert=5"),
            "[mesh] expert=2 does not divide the 5 experts of a layer; use mesh.expert=1 or 5",
        ),
        (
            ("mixtral/tiny.py", "model.n_expert=10"),
            "[mesh] expert=2: the 5 experts of a rank have 112640 elements in each of their "
            "matrices; expected a multiple of 4096, which keeps the bits of one process; use "
            "mesh.expert=1 or 5",
        ),
        (
            ("mixtral/tiny.py", "mesh.expert=8"),
            "[mesh] expert=8: the 1 experts of a rank have 22528 elements in each of their "
            "matrices; expected a multiple of 4096, which keeps the bits of one process; use "
            "mesh.expert=1, 2 or 4",
        ),
        (
            ("MIX", "model.d_model=36", "model.n_head=6"),
            "[mesh] expert=2: the 2 experts of a rank have 4608 elements in each of their matrices; "
            "expected a multiple of 4096, which keeps the bits of one process; use mesh.expert=1",
        ),
    ],
)
def test_experts_that_cannot_be_dealt_out_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    mixture = tmp_path / "mixture.py"
    mixture.write_text(
        "from mudd_core.config import Config, MixtralConfig\n\n\ndef get_config():\n    return Config(name='m', "
        "model=MixtralConfig(d_model=64, n_layer=1, n_head=4, n_kv_head=2, d_ff=64, n_expert=4))\n"
    )
    with pytest.raises(UserError) as caught:
        mc.load_config(str(mixture) if words[0] == "MIX" else words[0], ["mesh.expert=2", *words[1:]])
    assert str(caught.value) == message and caught.value.exit_code == 2


def test_ranks_that_the_experts_do_not_fit_are_refused() -> None:
    config = config_of()
    config = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, expert=2))
    with pytest.raises(UserError, match=r"expert=2 does not divide the ranks: 1 rank was started"):
        mesh_of(config, 1)
    assert str(mesh_of(config, 4)) == "data 1 x fsdp 4, experts on 2 ranks each"


def test_tensor_parallelism_is_refused_with_its_figure() -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", ["mesh.tensor=2"])
    assert str(caught.value) == (
        "[mesh] tensor=2: sharding inside layers needs 8 transfers of T x D per layer, none overlapped with compute "
        "(docs/scale.md); use mesh.tensor=1 mesh.fsdp=-1"
    )


def test_all_that_is_wrong_with_a_mesh_comes_at_once() -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", ["mesh.zero=2", "mesh.context=8", "mesh.data=0", "optim.beta2=1"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 4 and lines[0].startswith("[config] optim.beta2")
    assert "[mesh] data: expected -1 (all remaining ranks) or at least 1, got 0" in lines


def test_worlds_that_change_the_sums_are_refused() -> None:
    assert refusal(6) == (
        "[mesh] 6 ranks do not divide train.logical_shards=8: start 1, 2, 4 or 8, or set mesh.any_world=true "
        "(results then depend on the number of ranks)"
    )
    assert refusal(3, "train.batch_size=7") == (
        "[mesh] 3 ranks do not divide the 4 shards of train.batch_size=7: start 1, 2 or 4, or set "
        "mesh.any_world=true (results then depend on the number of ranks)"
    )


def test_more_ranks_than_sequences_or_shards_are_refused() -> None:
    assert refusal(8, "train.batch_size=4") == (
        "[mesh] 8 ranks are more than the sequences of a step, train.batch_size=4: start 1, 2 or 4, or start a run "
        "with train.batch_size=8 or more"
    )
    assert refusal(16, "train.batch_size=64") == (
        "[mesh] 16 ranks are more than the 8 shards of train.logical_shards=8 and train.batch_size=64: start "
        "1, 2, 4 or 8, or start a run with more shards"
    )
    assert "more than the sequences" in refusal(9, "mesh.any_world=true", "train.batch_size=8")
    assert "more than the 1 shard " in refusal(2, "train.logical_shards=1") and "start 1," in refusal(
        2, "train.logical_shards=1"
    )


def test_micro_batches_of_ranks_with_unequally_many_samples_are_refused() -> None:
    words = ("train.batch_size=16", "train.micro_batch_size=1", "mesh.any_world=true")
    assert refusal(3, *words) == (
        "[mesh] any_world: 3 ranks have different numbers of the 16 sequences of a step, so no "
        "micro-batch size fits: set train.micro_batch_size=0"
    )
    assert mesh_of(mc.load_config("tiny.py", [*words, "train.micro_batch_size=0"]), 3).world == 3
    assert mesh_of(mc.load_config("tiny.py", words), 4).world == 4


def test_a_typed_mesh_must_have_the_size_of_the_world() -> None:
    assert refusal(8, "mesh.data=2", "mesh.fsdp=3") == (
        "[mesh] data 2 x fsdp 3 = 6, but 8 ranks were started: set mesh.fsdp=-1, which uses the remaining ranks"
    )
    assert refusal(4, "mesh.data=8", "mesh.fsdp=8").endswith(
        "= 64, but 4 ranks were started: set mesh.data=-1 mesh.fsdp=-1, which uses the remaining ranks"
    )
    assert refusal(1, "mesh.data=1", "mesh.fsdp=2") == (
        "[mesh] data 1 x fsdp 2 = 2, but 1 rank was started: start --ranks=2, or set mesh.fsdp=-1, "
        "which uses the remaining ranks"
    )
    assert refusal(8, "mesh.fsdp=3") == (
        "[mesh] fsdp 3 does not divide the 8 ranks that were started: set mesh.fsdp=-1, which uses "
        "the remaining ranks"
    )
    assert "started: start --ranks=4, or set mesh.fsdp=-1" in refusal(2, "mesh.fsdp=4")
    assert "data 3 does not divide" in refusal(8, "mesh.data=3")
    # The advice works when it is typed.
    for world, *sizes in (
        (8, 2, 3),
        (4, 8, 8),
        (1, 1, 2),
        (8, 3, -1),
        (2, -1, 4),
    ):
        words = [f"mesh.{name}={size}" for name, size in zip(("data", "fsdp"), sizes, strict=True)]
        out = [word.strip(",") for word in refusal(world, *words).split() if word.startswith("mesh.")]
        assert out and mesh_of(mc.load_config("tiny.py", [*words, *out]), world).world == world


def test_micro_means_of_unequally_many_targets_are_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mean = ("loss.normalize=micro_mean", "train.micro_batch_size=1")
    assert refusal(2, *mean, "data.pipeline=rows") == (
        "[mesh] loss.normalize=micro_mean over 2 ranks needs the same number of targets in each "
        "micro-batch, and sequences of data.pipeline=rows may have fewer; use loss.normalize=valid, "
        "or one process"
    )
    uneven = ("loss.normalize=micro_mean", "train.batch_size=9", "train.logical_shards=4")
    assert "needs a train.batch_size divisible by the number of ranks, got 9" in refusal(2, *uneven)
    config = mc.load_config("tiny.py", mean)  # with plain text all targets contribute to the loss
    assert mesh_of(config, 2).world == 2 and mesh_of(
        mc.load_config("tiny.py", [*mean, "data.pipeline=rows"]), 1
    )
    words = [
        "--config=tiny.py",
        "--ranks=2",
        "--plan",
        f"--workdir={tmp_path / 'run'}",
        *mean,
        "data.pipeline=rows",
    ]
    assert main([*words, "data.path=README.md"]) == 2 and not list(tmp_path.iterdir())
    assert "micro_mean over 2 ranks" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["mesh.zero=2", "mesh.tensor=2", "mesh.fsdp=2"])
def test_nothing_is_written_for_a_refused_mesh(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config=tiny.py", f"--workdir={tmp_path / 'run'}", word]) == 2
    assert "[mesh] " in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_mesh_may_change_on_resume_and_saved_runs_need_none(tmp_path: Path) -> None:
    config = config_of()
    saved = to_dict(config)
    del saved["mesh"], saved["dist"]
    assert from_dict(saved) == config  # written by an earlier version
    changed = replace_path(replace_path(config, "mesh.fsdp", 1), "dist.node", "rank")
    assert config_hash(changed) == config_hash(config)
    with make(tmp_path / "run", None, "train.stop_at=5") as trainer:
        trainer.fit()
    with make(tmp_path / "run", None, "mesh.fsdp=1", "dist.node=rank") as trainer:
        trainer.fit()
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "mesh.fsdp: saved -1, asked 1" in events and "dist.node: saved 'host', asked 'rank'" in events
    with pytest.raises(UserError, match=r"train\.logical_shards: saved 8, asked 4"):
        make(tmp_path / "run", None, "train.logical_shards=4")
