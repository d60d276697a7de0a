"""The maps of data.pipeline=megatron: large ones are stored in a file, with the same order as in memory."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from id_cases import BATCH, LENGTH, config_of, lists, words_of, write_indexed
from mudd_core.base.errors import SaveError
from mudd_core.base.units import bytes_text
from mudd_core.cli import main
from mudd_core.data.pipelines import RowShape, kept_numbers, megatron_maps, prepare
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks

SHAPE = RowShape(LENGTH, BATCH, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return 800 training sequences, more than three blocks of sums in two epochs; some sequences are empty."""
    write_indexed(tmp_path / "d" / "x", lists(800, 0, 9))
    write_indexed(tmp_path / "held", lists(9, 4, 20))
    return tmp_path


def config(folder: Path, *words: str) -> Any:
    return config_of("megatron", folder / "d", f"data.eval_path={folder}/held", "data.epochs=2", *words)


def rows_of(folder: Path, said: list[str] | None = None) -> Any:
    heard = said if said is not None else []
    return prepare(config(folder), progress=lambda phase, *_: heard.append(phase)).rows("train", SHAPE)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("d-cache/maps/megatron-*[!k]"))  # without the .lock


def test_maps_in_a_file_have_the_order_of_those_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    held = rows_of(folder, said)
    assert not kept(folder) and not said  # small maps need no file
    monkeypatch.setattr(megatron_maps, "_HELD_BYTES", 0)
    stored = rows_of(folder, said)
    (path,) = kept(folder)
    assert said == [
        "shuffling 1,600 documents of 2 epochs",
        f"shuffling {stored.rows:,} sequences of 2 epochs",
    ]
    assert path.stat().st_size == 8 + 3 * 16 + 4 * 1600 + 8 * 8 + 4 * stored.rows + 32
    assert stored.rows == held.rows > 600
    wanted, got = held.arrays(0, held.rows + 3), stored.arrays(0, held.rows + 3)
    for name in ("inputs", "targets"):
        np.testing.assert_array_equal(wanted[name], got[name])
    draw = np.random.RandomState(SHAPE.seed)
    documents = np.tile(np.arange(800, dtype=np.int32), 2)
    draw.shuffle(documents)
    sizes = np.fromfile(folder / "d" / "x.idx", "<i4", 800, offset=34)
    split = np.split(np.fromfile(folder / "d" / "x.bin", "<u2"), np.cumsum(sizes)[:-1])
    ids = np.concatenate([split[number] for number in documents])
    order = np.arange(stored.rows, dtype=np.uint32)
    draw.shuffle(order)
    assert [row.tolist() for row in got["inputs"]][: stored.rows] == [
        ids[k * LENGTH : (k + 1) * LENGTH].tolist() for k in order.tolist()
    ]
    said.clear()
    assert rows_of(folder, said).rows == held.rows
    assert not said  # the next start reads the file


@pytest.mark.parametrize("at", [0, 9, 60, -40, -1])
def test_a_damaged_file_of_maps_is_made_again(at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron_maps, "_HELD_BYTES", 0)
    rows_of(folder)
    (path,) = kept(folder)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 1
    for data in (bytes(damaged), whole[:20], b""):
        path.write_bytes(data)
        rows_of(folder)
        assert path.read_bytes() == whole


def test_a_full_disk_ends_with_the_cure_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(megatron_maps, "_HELD_BYTES", 0)
    monkeypatch.setattr(kept_numbers.os, "fsync", full)
    with pytest.raises(
        SaveError, match=r"\[data.cache_dir\] cannot write the maps .*No space left.*free some"
    ):
        rows_of(folder)
    assert [path.suffix for path in (folder / "d-cache" / "maps").iterdir()] == [".lock"]


def test_ranks_and_a_resume_share_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(workdir: Path | None = None, comm: Any = None) -> str:
        with Trainer(config(folder), workdir, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    whole = trained()
    monkeypatch.setattr(megatron_maps, "_HELD_BYTES", 0)
    assert set(on_ranks(lambda comm: trained(comm=comm), 2)) == {whole}
    (path,) = kept(folder)
    made = path.stat().st_mtime_ns
    with Trainer(config(folder), folder / "run") as trainer:
        trainer.step()
        trainer.save()
    assert trained(folder / "run") == whole
    assert kept(folder) == [path] and path.stat().st_mtime_ns == made


def test_a_plan_has_the_size_of_the_maps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of("megatron", folder / "d", f"data.eval_path={folder}/held")
    sizes = np.fromfile(folder / "d" / "x.idx", "<i4", 800, offset=34)
    tokens = int(sizes.sum())
    epochs = megatron_maps.epochs_for(10_000_000 * BATCH, tokens, LENGTH)
    documents, windows = epochs * 800, (epochs * tokens - 1) // LENGTH
    size = bytes_text(4 * documents + 8 * (documents // 256 + 1) + 4 * windows)
    for steps, expected in (
        (4, []),
        (10_000_000, [f"  maps          {size} in {folder}/d-cache, built once by "]),
    ):
        argv = [word for word in words if not word.startswith("train.steps=")]
        assert main(["train", "--config=tiny.py", "--plan", *argv, f"train.steps={steps}"]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  maps  ")]
        assert [line[: len(text)] for line, text in zip(lines, expected, strict=True)] == expected
    assert not kept(folder)
