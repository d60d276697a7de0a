"""Checkpoints: round trips, damage of every kind, faults at every call, crash replay with the real loader."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_cases import RUN, STATE, faults, same, save, tiny_tensors
from mudd_core import _core, checkpoint
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.checkpoint import load, whole_parts


def test_round_trip_and_into(tmp_path: Path) -> None:
    folder = save(tmp_path / "made" / "here", 12)
    assert folder.name == "step-12"
    found = checkpoint.load_newest(tmp_path / "made" / "here", run_id="run-a")
    assert found is not None and found.passed_over == ()
    assert (found.step, found.state, found.config_hash, found.run_id) == (12, STATE, "cafe", "run-a")
    assert same(found.tensors, tiny_tensors(12))

    mine = {"embed": np.zeros((7, 5), np.float32)}
    again = checkpoint.load_step(
        tmp_path / "made" / "here", 12, into=whole_parts(mine), only=lambda name: name == "counts"
    )
    assert again.tensors.keys() == {"counts"}
    assert (mine["embed"] == tiny_tensors(12)["embed"]).all()


@pytest.mark.parametrize(
    "bad", [np.zeros((5, 7), np.float32), np.zeros((7, 5)), np.zeros((5, 7), np.float32).T, None]
)
def test_into_must_fit(tmp_path: Path, bad: np.ndarray[Any, Any] | None) -> None:
    save(tmp_path, 1)
    if bad is None:
        bad = np.zeros((7, 5), np.float32)
        bad.setflags(write=False)
    with pytest.raises(ValueError, match=r"into\['embed'\]"):
        checkpoint.load_step(tmp_path, 1, into=whole_parts({"embed": bad}))
    with pytest.raises(ValueError, match="nowhere"):
        checkpoint.load_step(tmp_path, 1, into=whole_parts({"nowhere": bad}))


def test_other_tools_read_the_shards(tmp_path: Path) -> None:
    import safetensors.numpy as oracle

    folder = save(tmp_path, 3)
    model = oracle.load_file(folder / "model-00001-of-00001.safetensors")
    wanted = tiny_tensors(3)
    assert same(model, {name: wanted[name] for name in wanted if "/" not in name})
    assert oracle.load_file(folder / "m-00001-of-00001.safetensors").keys() == {"m/embed"}


def test_shards_split_by_size(tmp_path: Path) -> None:
    tensors = {f"t{i}": np.full(100, i, np.float32) for i in range(7)}
    folder = checkpoint.save(tmp_path, 1, whole_parts(tensors), {}, **RUN, shard_bytes=850)
    assert len(list(folder.glob("model-*-of-00004.safetensors"))) == 4
    found = checkpoint.load_step(tmp_path, 1)
    assert same(found.tensors, tensors)


def test_non_contiguous_and_read_only_arrays(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    base.setflags(write=False)
    tensors = {"transposed": base.T, "strided": base[:, ::2], "plain": base, "scalar": np.array(2.0)}
    checkpoint.save(tmp_path, 1, whole_parts(tensors), {}, **RUN)
    found = checkpoint.load_step(tmp_path, 1).tensors
    assert all((found[name] == tensors[name]).all() for name in tensors)


@pytest.mark.parametrize(
    ("tensors", "state", "error"),
    [
        ({"x": np.zeros(2, np.complex128)}, {}, ValueError),
        ({"x": np.zeros(2, ">f4")}, {}, ValueError),
        ({"x": [1.0]}, {}, TypeError),
        ({"../x/y": np.zeros(2)}, {}, ValueError),
        ({"": np.zeros(2)}, {}, ValueError),
        ({"x": np.zeros(2)}, {"loss": float("nan")}, ValueError),
        ({"x": np.zeros(2)}, {"loss": object()}, TypeError),
    ],
)
def test_what_cannot_be_stored_leaves_nothing(tmp_path: Path, tensors: Any, state: Any, error: Any) -> None:
    with pytest.raises(error):
        checkpoint.save(tmp_path, 1, whole_parts(tensors), state, **RUN)
    assert list(tmp_path.iterdir()) == []


def test_newest_that_verifies_and_reports(tmp_path: Path) -> None:
    for step in (10, 9, 2):
        save(tmp_path, step)
    (tmp_path / "step-11").mkdir()
    (tmp_path / "step-12.tmp-00").mkdir()
    (tmp_path / "step-013").mkdir()
    (tmp_path / "step-14").write_bytes(b"a file")
    (tmp_path / "step-15").symlink_to("step-9")
    shard = tmp_path / "step-10" / "m-00001-of-00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and found.step == 9 and same(found.tensors, tiny_tensors(9))
    assert [passed.step for passed in found.passed_over] == [15, 14, 11, 10]
    assert "it is a link, expected a folder" in str(found.passed_over[0])
    assert "it is a file, expected a folder" in str(found.passed_over[1])
    assert "manifest is missing" in str(found.passed_over[2])
    assert found.passed_over[3].tensor == "m/embed" and found.passed_over[3].file == str(shard)
    with pytest.raises(UserError, match=r"step-15 is a link, expected a folder"):
        checkpoint.load_step(tmp_path, 15)
    with pytest.raises(SaveError, match=r"step-15 is a link, expected a folder or nothing"):
        save(tmp_path, 15)
    with pytest.raises(FormatError, match="m/embed"):
        checkpoint.load_step(tmp_path, 10)
    with pytest.raises(UserError, match=r"no checkpoint of step 5.*2, 9, 10"):
        checkpoint.load_step(tmp_path, 5)
    with pytest.raises(UserError, match=r"no checkpoint of step -1"):
        checkpoint.load_step(tmp_path, -1)


def test_nothing_there_and_nothing_good(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path / "none") is None
    assert checkpoint.load_newest(tmp_path) is None
    folder = save(tmp_path, 1)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(FormatError, match="no checkpoint verifies"):
        checkpoint.load_newest(tmp_path)


def test_every_flip_in_every_file_is_found(memory_path: Path) -> None:
    folder = save(memory_path, 4)
    rng = random.Random(1)
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        positions = range(len(good)) if len(good) < 700 else rng.sample(range(len(good)), 400)
        for position in positions:
            bad = bytearray(good)
            bad[position] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            with pytest.raises(FormatError):
                checkpoint.verify_step(folder)
        path.write_bytes(good)
    checkpoint.verify_step(folder)


def test_every_cut_growth_loss_and_swap_is_found(memory_path: Path) -> None:
    folder, other = save(memory_path, 4), save(memory_path, 5)
    rng = random.Random(2)
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        for bad in [b"", good[:-1], good + b"\n", *(good[: rng.randrange(len(good))] for _ in range(20))]:
            path.write_bytes(bad)
            with pytest.raises(FormatError):
                checkpoint.verify_step(folder)
        path.unlink()
        with pytest.raises(FormatError, match="missing"):
            checkpoint.verify_step(folder)
        path.write_bytes((other / path.name).read_bytes())  # same shapes, another step
        with pytest.raises(FormatError):
            checkpoint.verify_step(folder)
        path.write_bytes(good)
    first, second = folder / "m-00001-of-00001.safetensors", folder / "model-00001-of-00001.safetensors"
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(FormatError):
        checkpoint.verify_step(folder)


def test_another_run_or_step_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 4)
    save(tmp_path, 6, run_id="run-b")
    found = checkpoint.load_newest(tmp_path, run_id="run-a")
    assert found is not None and found.step == 4 and "run-b" in found.passed_over[0].reason
    with pytest.raises(FormatError, match="run-b"):
        checkpoint.load_step(tmp_path, 6, run_id="run-a")
    with pytest.raises(SaveError, match="run-b"):
        save(tmp_path, 6)
    shutil.copytree(tmp_path / "step-4", tmp_path / "step-7")
    with pytest.raises(FormatError, match="of step 4"):
        checkpoint.load_step(tmp_path, 7)


def test_saving_twice_keeps_a_good_step_and_replaces_a_bad_one(tmp_path: Path) -> None:
    folder = save(tmp_path, 4)
    before = (folder / "manifest.json").stat().st_ino
    save(tmp_path, 4)
    assert (folder / "manifest.json").stat().st_ino == before
    (folder / "manifest.json").write_text("broken")
    save(tmp_path, 4)
    assert checkpoint.load_step(tmp_path, 4).step == 4
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]
    other = {name: array.copy() for name, array in tiny_tensors(4).items()}
    name = next(name for name, array in other.items() if array.size)
    other[name].reshape(-1)[0] += 1  # somebody set weights after the save of this step
    checkpoint.save(tmp_path, 4, whole_parts(other), STATE, **RUN)
    assert same(checkpoint.load_step(tmp_path, 4).tensors, other)


def test_a_step_that_vanishes_while_it_is_read_sends_the_reader_to_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 4)
    verify = load.verify_step

    def late(folder: Path | str, **of: Any) -> Any:
        found = verify(folder, **of)
        if Path(folder).name == "step-4":  # a run with keep_last=1 saves, and releases this step
            save(tmp_path, 6)
            shutil.rmtree(folder)
        return found

    monkeypatch.setattr(load, "verify_step", late)
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and found.step == 6 and found.passed_over == ()


def keep_last(directory: Path, keep: int, saved_step: int) -> list[int]:
    return checkpoint.keep_last(directory, keep, run_id=RUN["run_id"], saved_step=saved_step)


def test_keep_last_reads_the_newest_back_first(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        save(tmp_path, step)
    assert keep_last(tmp_path, 4, 10) == []
    assert keep_last(tmp_path, 2, 10) == [1, 2]
    assert checkpoint.list_steps(tmp_path) == [3, 10]
    shard = tmp_path / "step-10" / "model-00001-of-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(FormatError):
        keep_last(tmp_path, 1, 10)
    assert checkpoint.list_steps(tmp_path) == [3, 10]
    with pytest.raises(ValueError, match="keep"):
        keep_last(tmp_path, -1, 10)


def test_keep_last_counts_this_runs_steps_up_to_the_saved_one(tmp_path: Path) -> None:
    for step in (2, 4, 6, 9):
        save(tmp_path, step)
    (tmp_path / "step-4" / "manifest.json").write_text("broken")  # its owner is unknown
    (tmp_path / "step-9" / "manifest.json").write_text("broken")  # a resume has skipped this one
    save(tmp_path, 5, run_id="run-b")
    save(tmp_path, 100, run_id="run-b")
    assert keep_last(tmp_path, 2, 6) == []
    assert keep_last(tmp_path, 1, 6) == [2]
    assert checkpoint.list_steps(tmp_path) == [4, 5, 6, 9, 100]
    found = checkpoint.load_newest(tmp_path, run_id="run-a")
    assert found is not None and found.step == 6


def test_temporaries_of_dead_writers_go(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step-2.tmp-abcd").mkdir()
    (tmp_path / "step-2.tmp-abcd" / "model.safetensors").write_bytes(b"half")
    living = _core.AtomicFolder(str(tmp_path), "step-3", "live")
    assert checkpoint.recover(tmp_path) == ["step-2.tmp-abcd"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1", "step-3.tmp-live"]
    del living
    assert checkpoint.recover(tmp_path / "none") == []


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with faults(shrink_free_space=(1000,)) as files, pytest.raises(SaveError, match=r"train\.keep_last"):
        save(tmp_path, 2)
    assert files.log == []
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_failure_at_every_call_of_a_save_harms_nothing(memory_path: Path) -> None:
    save(memory_path, 1)
    for nth in range(1, 200):
        with faults(fail_at=(nth, errno.ENOSPC)) as files:
            try:
                save(memory_path, 2)
                failed = False
            except SaveError as error:
                failed = True
                assert "No space left" in str(error)
        names = sorted(path.name for path in memory_path.iterdir())
        assert names in (["step-1"], ["step-1", "step-2"]), nth
        assert same(checkpoint.load_step(memory_path, 1).tensors, tiny_tensors(1))
        if "step-2" in names:  # committed: complete, even if the last sync reported an error
            assert same(checkpoint.load_step(memory_path, 2).tensors, tiny_tensors(2))
            shutil.rmtree(memory_path / "step-2")
        if not failed and nth > files.count:
            return
    pytest.fail("a save makes fewer than 200 calls")


def test_short_reads_and_writes_change_nothing(memory_path: Path) -> None:
    for nth in range(1, 30):
        with faults(shorten_at=(nth,)):
            save(memory_path / str(nth), 2)
            found = checkpoint.load_newest(memory_path / str(nth))
        assert found is not None and same(found.tensors, tiny_tensors(2))


def test_a_failing_read_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    with faults() as files:
        checkpoint.load_step(tmp_path, 2)
    for nth in range(2, files.count // 2):
        with faults(fail_at=(nth, errno.EIO)):
            found = checkpoint.load_newest(tmp_path)
        assert found is not None
        if found.step == 1:
            assert "Input/output error" in found.passed_over[0].reason
