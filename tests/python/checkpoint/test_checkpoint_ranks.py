"""Checkpoints of many ranks: any world loads any, no rank gathers everything, a failure of one rank fails all."""

from __future__ import annotations

import errno
import itertools
import json
import random
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manifest_1_0
from checkpoint_cases import RUN, STATE, faults, same
from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.checkpoint import StatePart, whole_parts, write_plan
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.dist import Comm
from rank_runs import on_ranks
from rank_states import WORLDS, World, cut, held_by, load, random_tensors, save


@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(WORLDS, WORLDS)))
def test_any_world_loads_any_checkpoint(memory_path: Path, writer: str, reader: str) -> None:
    tensors = random_tensors(5)
    save(memory_path, 5, WORLDS[writer], tensors)
    for node, found in enumerate(load(memory_path, WORLDS[reader], tensors)):
        assert same(found, held_by(node, WORLDS[reader], tensors)), node
    whole = checkpoint.load_step(memory_path, 5)
    assert same(whole.tensors, tensors) and whole.state == STATE


def test_ranks_that_hold_everything_alike_write_the_tensors_of_one_process(tmp_path: Path) -> None:
    """If all tensors are whole, the format is 1.0, with its file names."""
    tensors = {name: array for name, array in random_tensors().items() if "/" not in name}
    folder = save(tmp_path, 1, WORLDS["4"], tensors)
    body = json.loads((folder / "manifest.json").read_bytes())
    assert body["version"] == [1, 0] and body["world"] == 4
    assert len(list(folder.glob("model-*-of-00004.safetensors"))) == 4
    manifest_1_0.read_manifest(folder)


def test_parts_have_names_of_their_own_and_other_tools_read_them(tmp_path: Path) -> None:
    import safetensors.numpy as oracle

    tensors = random_tensors()
    folder = save(tmp_path, 1, WORLDS["4 in parts"], tensors)
    found = {}
    for file in folder.glob("*.safetensors"):
        found |= oracle.load_file(file)
    assert found["embed@24"].shape == (9, 7) and found["blocks.0.experts.up@7"].shape == (4, 6)
    assert found["final_norm.gain@2"].shape == (3,) and found["blocks.0.scale"].shape == ()
    assert "embed" not in found and "updates/count" in found
    rows = [found[f"first_moment/embed@{row}"] for row in (0, 8, 16, 24)]
    assert (np.concatenate(rows) == tensors["first_moment/embed"]).all()


def test_the_reader_of_1_0_refuses_slices_by_its_own_message(tmp_path: Path) -> None:
    folder = save(tmp_path, 1, WORLDS["2"])
    assert json.loads((folder / "manifest.json").read_bytes())["version"] == [1, 1]
    with pytest.raises(FormatError, match="into slices of a mesh; this version of mudd_core reads whole"):
        manifest_1_0.read_manifest(folder)


@pytest.mark.parametrize("world", [2, 4, 8])
def test_no_rank_writes_more_than_its_share(world: int) -> None:
    """Save 44M of 36k ids and width 512: much of it is one table, which 8 ranks must split."""
    number = np.float32(0)
    shapes = {"embed": (36000, 512)} | {
        f"blocks.{i}.{name}": shape
        for i in range(8)
        for name, shape in {
            "qkv": (512, 1536),
            "o": (512, 512),
            "up": (512, 2816),
            "down": (1408, 512),
        }.items()
    }
    weights = {name: np.broadcast_to(number, shape) for name, shape in shapes.items()}

    def work(comm: Comm) -> write_plan.WritePlan:
        parts = whole_parts(weights)
        for moment in ("first_moment", "second_moment"):
            for name, array in weights.items():
                rows = array.shape[0]
                begin, end = rows * comm.rank // world, rows * (comm.rank + 1) // world
                parts.append(
                    StatePart(f"{moment}/{name}", array.shape, begin * array.shape[1], array[begin:end])
                )
        return write_plan.plan_writes(parts, 4 << 30, comm)

    plan, *others = on_ranks(work, world)
    assert all(other == plan for other in others)
    loads = [plan.bytes_of(rank) for rank in range(world)]
    assert max(loads) <= 1.3 * sum(loads) / world
    cuts = {part.name for part in plan.parts if "/" not in part.name and part.end - part.begin < 512 * 36000}
    whole = [part for part in plan.parts if part.name == "embed"]
    assert (len(whole) == 1) == (world < 8) and "blocks.0.o" in cuts  # small tensors stay whole
    assert sum(part.name == "blocks.0.o" for part in plan.parts) == 1


@pytest.mark.parametrize("world", ["2", "4 in parts"])
def test_the_hash_is_that_of_one_process(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PIECE_BYTES", 64)
    monkeypatch.setattr(checkpoint, "SIGN_BYTES", 1000)
    tensors = {name: array for name, array in random_tensors().items() if "/" not in name}
    wanted = checkpoint.final_hash(whole_parts(tensors))
    shape = WORLDS[world]
    hashes = on_ranks(lambda comm: checkpoint.final_hash(shape.parts(tensors, comm), comm), shape.ranks)
    assert hashes == [wanted] * shape.ranks


@pytest.mark.parametrize("shape", [WORLDS["4 in parts"], World(1, 4, 4)])
def test_no_rank_holds_the_model_because_of_a_save_a_load_or_a_hash(memory_path: Path, shape: World) -> None:
    """Save two tensors of 24 MiB, sharded or on each of four ranks; a rank needs only a few more pieces of 1 MiB."""
    tensors = {name: np.full((6 << 10, 1 << 10), 3, np.float32) for name in ("up", "down")}
    target = {name: np.zeros_like(array) for name, array in tensors.items()}

    def work(comm: Comm) -> str:
        checkpoint.save(memory_path, 1, shape.parts(tensors, comm), STATE, comm=comm, **RUN)
        checkpoint.load_newest(memory_path, into=shape.parts(target, comm), comm=comm)
        return checkpoint.final_hash(shape.parts(target, comm), comm)

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        hashes = on_ranks(work, shape.ranks)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert hashes[0] == checkpoint.final_hash(whole_parts(tensors)) and same(target, tensors)
    assert most < 16 << 20, most  # of four ranks together


def two(tensors: dict[str, Any], comm: Comm) -> list[StatePart]:
    return WORLDS["2"].parts(tensors, comm)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (lambda rank: [cut("a", np.zeros((8, 2)), rank, 3)], "no rank has the elements from 10 on"),
        (lambda rank: [cut("a", np.zeros((8, 2)), 2 * rank, 3)], "leave a hole at element 4"),
        (lambda rank: [cut("a", np.zeros((8, 2)), 0, 1 + rank)], "overlap at element 0"),
        (
            lambda rank: whole_parts({"a": np.zeros(2 + rank)}),
            "expected the same dtype and shape on all ranks",
        ),
        (lambda rank: whole_parts({"a@3": np.zeros(2)}), "expected a name"),
        (lambda rank: whole_parts({"a": np.zeros(2)}) if rank else [3], "AttributeError"),
    ],
)
def test_parts_that_do_not_make_a_state_are_refused_on_all_ranks(
    tmp_path: Path, parts: Any, reason: str
) -> None:
    def work(comm: Comm) -> str:
        with pytest.raises((ValueError, RuntimeError)) as caught:
            checkpoint.save(tmp_path, 1, parts(comm.rank), STATE, comm=comm, **RUN)
        return str(caught.value)

    assert all(reason in message for message in on_ranks(work, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_at_every_call_is_everybodys_and_harms_nothing(memory_path: Path) -> None:
    """Both ranks draw from one count of calls, so the failing call is on either of them."""
    old, new = random_tensors(1), random_tensors(2)
    save(memory_path, 1, WORLDS["2"], old)
    for nth in range(1, 400):

        def work(comm: Comm) -> str:
            try:
                checkpoint.save(memory_path, 2, two(new, comm), STATE, comm=comm, **RUN)
            except SaveError as error:
                return str(error)
            return ""

        with faults(fail_at=(nth, errno.ENOSPC)) as files:
            first, second = on_ranks(work, 2)
        assert first == second and (not first or "No space left" in first), nth
        names = sorted(path.name for path in memory_path.iterdir())
        assert names in (["step-1"], ["step-1", "step-2"]), nth
        assert same(checkpoint.load_step(memory_path, 1).tensors, old)
        if "step-2" in names:
            assert same(checkpoint.load_step(memory_path, 2).tensors, new)
            shutil.rmtree(memory_path / "step-2")
        if not first and nth > files.count:
            return
    pytest.fail("a save makes fewer than 400 calls")


def test_every_flip_in_every_file_of_two_ranks_is_found_by_both(memory_path: Path) -> None:
    folder = save(memory_path, 4, WORLDS["2"])
    rng = random.Random(1)
    files = sorted(folder.iterdir())
    assert len(files) == 8  # the manifest, counters, and for each rank weights and both moments
    for path in files:
        good = path.read_bytes()
        for position in rng.sample(range(len(good)), 25):
            bad = bytearray(good)
            bad[position] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            errors = on_ranks(lambda comm: refused(folder, comm), 2)
            assert errors[0] == errors[1], position
        path.write_bytes(good)
    checkpoint.verify_step(folder)


def refused(folder: Path, comm: Comm) -> str:
    with pytest.raises(FormatError) as caught:
        checkpoint.verify_step(folder, comm=comm)
    return str(caught.value)


def test_all_ranks_take_the_newest_step_that_verifies(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, WORLDS["2"])
    shard = sorted((tmp_path / "step-3").glob("first_moment-*"))[1]  # on the second rank
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    (tmp_path / "step-4").mkdir()

    def work(comm: Comm) -> Any:
        found = checkpoint.load_newest(tmp_path, into=two(random_tensors(), comm), comm=comm)
        assert found is not None
        with pytest.raises(UserError, match="no checkpoint of step 9"):
            checkpoint.load_step(tmp_path, 9, comm=comm)
        kept = checkpoint.keep_last(tmp_path, 1, run_id=RUN["run_id"], saved_step=2, comm=comm)
        return found.step, [(passed.step, passed.tensor) for passed in found.passed_over], kept

    first, second = on_ranks(work, 2)
    assert first == second == (2, [(4, ""), (3, "first_moment/blocks.0.scale")], [1])
    assert checkpoint.list_steps(tmp_path) == [2, 3, 4]


def test_a_step_that_is_saved_again_is_replaced_only_by_other_bytes(tmp_path: Path) -> None:
    folder = save(tmp_path, 4, WORLDS["2"])
    before = (folder / "manifest.json").stat().st_ino
    save(tmp_path, 4, WORLDS["2"])
    assert (folder / "manifest.json").stat().st_ino == before
    other = random_tensors(4)
    other["first_moment/embed"][-1, -1] += 1  # on the second rank
    save(tmp_path, 4, WORLDS["2"], other)
    assert same(checkpoint.load_step(tmp_path, 4).tensors, other)
    with pytest.raises(SaveError, match="run-b"):
        save(tmp_path, 4, WORLDS["4"], run_id="run-b")
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]


def test_ranks_with_less_to_do_give_signs_of_life_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save or a load may take longer than dist.hang_timeout, most of it in one rank's files."""
    seen: dict[tuple[int, str], int] = Counter()
    monkeypatch.setattr(
        Comm, "set_phase", lambda comm, phase, step: seen.update([(comm.rank, f"{phase} {step}")])
    )
    mine = {f"plane{i}/x": np.full(5, i, np.float32) for i in range(6)}

    def work(comm: Comm) -> None:
        parts = whole_parts({} if comm.rank else mine)
        checkpoint.save(tmp_path, 3, parts, STATE, comm=comm, **RUN)
        checkpoint.load_newest(tmp_path, into=parts, comm=comm)

    on_ranks(work, 2)
    assert seen[0, "save 3"] == seen[1, "save 3"] == 6  # files, all on rank 0
    assert (
        seen[0, "data 3"] == seen[1, "data 3"] == 3 + 1
    )  # each rank verifies half of them: one round of reading


def test_into_must_fit_on_every_rank(tmp_path: Path) -> None:
    tensors = random_tensors()
    save(tmp_path, 1, World(1, 1, 1), tensors)

    def work(comm: Comm) -> str:
        wrong = {"embed": np.ones((33, 7 + comm.rank), np.float32)}
        with pytest.raises(ValueError, match=r"into\['embed'\]") as caught:
            checkpoint.load_newest(tmp_path, into=whole_parts(wrong), comm=comm)
        assert (wrong["embed"] == 1).all()
        return str(caught.value)

    first, second = on_ranks(work, 2)
    assert first == second
    assert read_manifest(tmp_path / "step-1").tensors["embed"].shape == (33, 7)
