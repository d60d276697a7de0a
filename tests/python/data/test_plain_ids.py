"""The pipeline `ids`: files of nanoGPT, llm.c and OLMo, the order of the pipeline `text`, and wrong files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from id_cases import BATCH, DRAW, LENGTH, VOCAB, config_of
from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.formats import format_of
from mudd_core.data.pipelines import RowShape, prepare

IDS = DRAW.integers(1, VOCAB, 203)
SHAPE = RowShape(LENGTH, BATCH, 5)
HELD = len(IDS) // 20


def of_llm_c(magic: int, kind: str, count: int = len(IDS)) -> bytes:
    head = np.zeros(256, "<i4")
    head[:3] = magic, 1, count
    return head.tobytes() + IDS.astype(kind).tobytes()


def as_array(path: Path) -> None:
    np.save(path, IDS.astype(np.int32))


PLAIN = IDS.astype("<u2").tobytes()
FILES = {
    "train.bin": PLAIN,  # nanoGPT
    "fineweb_train_000001.bin": of_llm_c(20240520, "<u2"),
    "llama.bin": of_llm_c(20240801, "<u4"),
    "part-0-00000.npy": PLAIN,  # OLMo
    "x.u16": PLAIN,
    "x.u32": IDS.astype("<u4").tobytes(),
}


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def core_rows(path: Path, ids: np.ndarray, split: str, samples: int) -> dict[str, np.ndarray]:
    """Return the sequences that the pipeline `text` creates from the same ids."""
    data = ids.astype("<u2")
    path.write_bytes(data.tobytes())
    core = _core.Batcher(
        path=str(path),
        offset=0,
        count=data.size,
        width=2,
        vocab_size=VOCAB,
        block_crcs=_core.crc32c_blocks(data),
        shuffled=split == "train",
        seq_len=LENGTH,
        seed=SHAPE.seed,
        pad_id=0,
    )
    arrays = {name: np.empty((samples, LENGTH), np.int32) for name in ("inputs", "targets")}
    core.fill(0, arrays["inputs"], arrays["targets"])
    return arrays


@pytest.mark.parametrize("name", [*FILES, "array.npy"])
def test_each_format_gives_the_rows_of_the_pipeline_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / "d" / name
    path.parent.mkdir()
    as_array(path) if name == "array.npy" else path.write_bytes(FILES[name])
    data = prepare(config_of("ids", path))
    for split, ids in (("train", IDS[:-HELD]), ("valid", IDS[-HELD:])):
        rows = data.rows("train" if split == "train" else "valid", SHAPE)
        wanted = core_rows(tmp_path / "core", ids, split, 60)
        got = rows.arrays(0, 60)
        for part in ("inputs", "targets"):
            assert got[part].tolist() == wanted[part].tolist()


def test_several_files_are_one_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudd_core.data.pipelines.ids._OPEN_FILES", 2)
    for number, part in enumerate(np.split(IDS, [3, 4, 90, 150])):
        written(tmp_path / "d" / f"{number}.u16", part.astype("<u2").tobytes())
    written(tmp_path / "val.bin", PLAIN[:100])
    data = prepare(config_of("ids", tmp_path / "d", f"data.eval_path={tmp_path}/val.bin"))
    got = data.rows("train", SHAPE).arrays(0, 60)
    wanted = core_rows(tmp_path / "core", IDS, "train", 60)
    assert got["inputs"].tolist() == wanted["inputs"].tolist()
    valid = data.rows("valid", SHAPE)
    targets = valid.arrays(0, valid.rows)["targets"]
    assert targets[targets >= 0].tolist() == IDS[1:50].tolist()
    ordered = prepare(config_of("ids", tmp_path / "d", "data.shuffle=off")).rows("train", SHAPE)
    assert ordered.arrays(0, 2)["inputs"].ravel().tolist() == IDS[: 2 * LENGTH].tolist()


def test_a_large_vocabulary_has_ids_of_four_bytes(tmp_path: Path) -> None:
    path = written(tmp_path / "d" / "part.npy", (IDS + 99_000).astype("<u4").tobytes())
    data = prepare(config_of("ids", path, "model.vocab_size=100000"))
    assert data.rows("valid", SHAPE).arrays(0, 1)["inputs"][0, 0] == IDS[-HELD] + 99_000


@pytest.mark.parametrize(
    ("name", "content", "error", "reason"),
    [
        (
            "a.bin",
            IDS.astype("<u4").tobytes(),
            FormatError,
            r"seem to have 4 bytes, not 2; rename it to a\.u32",
        ),
        ("a.bin", PLAIN + b"\1", FormatError, "a multiple of 2 bytes"),
        ("a.bin", of_llm_c(20240520, "<u2", 204), FormatError, "the header promises 204 ids"),
        (
            "a.u16",
            PLAIN + (VOCAB).to_bytes(2, "little"),
            FormatError,
            f"ids from 0 to {VOCAB - 1}, got {VOCAB}",
        ),
        ("a.txt", b"text", UserError, r"expected files of token ids .* got text"),
        ("a.u16", PLAIN[:16], UserError, f"at least {LENGTH + 1} ids for train, got 8"),
    ],
)
def test_bad_files_are_refused(
    name: str, content: bytes, error: type[Exception], reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "d" / name, content)
    with pytest.raises(error, match=reason):
        data = prepare(config_of("ids", path))
        data.rows("train", SHAPE).arrays(0, 60), data.rows("valid", SHAPE).arrays(0, 9)


def test_the_pipeline_text_names_this_one(tmp_path: Path) -> None:
    path = written(tmp_path / "d" / "train.bin", PLAIN)
    with pytest.raises(UserError, match=r"got tokens files of ids; set data\.pipeline=ids$"):
        prepare(config_of("text", path))


def test_a_missing_index_of_megatron_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "d" / "train.bin", PLAIN)
    with pytest.raises(UserError, match=r"expected one NAME\.bin with NAME\.idx .* data\.pipeline=ids"):
        prepare(config_of("megatron", path))


@pytest.mark.parametrize("pipeline", ["pack", "ids"])
def test_a_bin_that_holds_no_ids_is_not_trained(pipeline: str, tmp_path: Path) -> None:
    packed = gzip.compress(b"some text " * 99)
    path = written(tmp_path / "d" / "a.bin", packed + b"\0" * (len(packed) % 2))
    said = "gunzip" if pipeline == "pack" else "expected files of token ids"
    with pytest.raises(UserError, match=said):
        prepare(config_of(pipeline, path, "data.tokenizer=bytes"), progress=lambda *_: None)
    path.write_bytes(b"some text with \xc3\xa9 " * 300)
    assert format_of(path).name == "text"
    path.write_bytes(PLAIN)
    assert format_of(path).name == "tokens"
