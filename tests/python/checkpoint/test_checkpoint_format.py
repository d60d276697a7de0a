"""Checkpoints as files: false manifests, newer formats, goldens, weights of other tools, memory, block checksums."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rank_states
from checkpoint_cases import RUN, STATE, same, save, tiny_tensors
from mudd_core import _core, checkpoint
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint import manifest_reader, whole_parts
from places import TESTS

GOLDENS = TESTS / "goldens" / "checkpoint_v1"


def edited(folder: Path, change: Any) -> None:
    """Change a manifest by `change(body)` and write it with valid checksums: a forgery, not an accident."""
    body = json.loads((folder / "manifest.json").read_bytes())
    del body["manifest_crc32c"]
    change(body)
    head = json.dumps(body, indent=1).removesuffix("\n}").encode()
    tail = f',\n "manifest_crc32c": "{_core.crc32c(head):08x}"\n}}\n'
    (folder / "manifest.json").write_bytes(head + tail.encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(format="other"),
        lambda body: body.update(step=-1),
        lambda body: body.update(step=True),
        lambda body: body.update(files=[]),
        lambda body: body["files"].update({"../x": {"bytes": 1, "crc32c": "00000000"}}),
        lambda body: body["files"].update({"gone": {"bytes": 1, "crc32c": "00000000"}}),
        lambda body: body["files"].clear(),
        lambda body: body["tensors"]["embed"].update(shape=[1 << 62, 1 << 62]),
        lambda body: body["tensors"]["embed"].update(dtype="F64"),
        lambda body: body["tensors"]["embed"].update(slices=[]),
        lambda body: body["tensors"]["embed"]["slices"][0].update(range=[0, 1 << 62]),
        lambda body: body["tensors"]["embed"]["slices"][0].update(range=[8, 4]),
        lambda body: body["tensors"]["embed"]["slices"][0].update(crc32c="xyz"),
        lambda body: body["tensors"]["embed"]["slices"][0].update(crc32c=""),
        lambda body: body["tensors"]["embed"]["slices"][0].update(offsets=[1, 0]),
        lambda body: body["tensors"].pop("embed"),
        lambda body: body["tensors"].update(more=body["tensors"]["embed"]),
        lambda body: body.update(run_id="run-c"),
        lambda body: body.update(block_bytes=1),
        lambda body: body.update(version=[1]),
    ],
)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, change: Any) -> None:
    folder = save(tmp_path, 1)
    edited(folder, lambda body: None)
    checkpoint.verify_step(folder)  # the change itself is not the error
    edited(folder, change)
    with pytest.raises(FormatError):
        checkpoint.load_newest(tmp_path)


def slices_of(body: Any) -> Any:
    """Return the slices of a matrix [33, 7], of 16 and 17 rows."""
    return body["tensors"]["first_moment/embed"]["slices"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body: slices_of(body).pop(), "has slices of 112 elements of tensor 'first_moment/embed'"),
        (lambda body: slices_of(body).pop(0), "leaves out elements of tensor 'first_moment/embed' at 0"),
        (lambda body: slices_of(body).append(slices_of(body)[1]), "repeats elements .* at 231"),
        (lambda body: slices_of(body).reverse(), "leaves out elements"),
        (lambda body: slices_of(body)[1].update(offsets=[15, 0]), "repeats elements .* at 112"),
        (lambda body: slices_of(body)[1].update(offsets=[17, 0]), "leaves out elements .* at 112"),
        (lambda body: slices_of(body)[1].update(offsets=[16, 1]), "inside a row"),
        (lambda body: slices_of(body)[1].update(offsets=[16]), "inside a row"),
        (lambda body: slices_of(body)[1].update(shape=[119]), "inside a row"),
        (lambda body: slices_of(body)[1].update(shape=[17, 6]), "inside a row"),
        (lambda body: slices_of(body)[0].update(shape=[0, 7]), "has an empty slice"),
        (
            lambda body: body["tensors"]["first_moment/embed"].update(shape=[7, 33]),
            "inside a row",
        ),
        (
            lambda body: slices_of(body)[0].update(file=slices_of(body)[1]["file"]),
            "header and the manifest describe different tensors",
        ),
    ],
)
def test_slices_that_lie_are_refused(tmp_path: Path, change: Any, reason: str) -> None:
    folder = rank_states.save(tmp_path, 1, rank_states.WORLDS["2"])
    edited(folder, lambda body: None)
    checkpoint.verify_step(folder)
    edited(folder, change)
    with pytest.raises(FormatError, match=reason):
        checkpoint.verify_step(folder)


def test_a_newer_format_is_refused_by_name_and_never_trained_over(tmp_path: Path) -> None:
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    edited(folder, lambda body: body.update(version=[2, 0]))
    for attempt in (lambda: checkpoint.load_newest(tmp_path), lambda: save(tmp_path, 2)):
        with pytest.raises(UserError, match=r"format 2\.0 is newer"):
            attempt()
    edited(folder, lambda body: body.update(version=[1, 9]))
    assert checkpoint.load_step(tmp_path, 2).step == 2


def test_goldens_of_format_1_load(tmp_path: Path) -> None:
    found = checkpoint.load_step(GOLDENS, 1)
    assert same(found.tensors, golden_tensors()) and found.state == STATE
    assert (found.run_id, found.config_hash) == ("run-a", "cafe")
    checkpoint.save(tmp_path, 1, whole_parts(golden_tensors()), STATE, **RUN)
    for path in sorted((GOLDENS / "step-1").iterdir()):
        assert (tmp_path / "step-1" / path.name).read_bytes() == path.read_bytes(), path.name
    text = (GOLDENS / "final_hash.txt").read_text().strip()
    assert checkpoint.final_hash(whole_parts(golden_tensors())) == text


def test_goldens_of_format_1_1_load_and_are_written_alike(tmp_path: Path) -> None:
    """Two ranks saved `in parts`: a table, a stack that is split inside an expert, a vector, and a whole tensor."""
    golden = GOLDENS.with_name("checkpoint_v1_1")
    found = checkpoint.load_step(golden, 1)
    assert same(found.tensors, golden_slices()) and found.state == STATE
    world = rank_states.World(1, 2, 1, whole_weights=False)
    again = rank_states.save(tmp_path, 1, world, golden_slices())
    for path in sorted((golden / "step-1").iterdir()):
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
    assert len(list(again.iterdir())) == len(list((golden / "step-1").iterdir()))
    text = (golden / "final_hash.txt").read_text().strip()
    assert checkpoint.final_hash(whole_parts(golden_slices())) == text


def golden_slices() -> dict[str, np.ndarray[Any, Any]]:
    return {
        "embed": np.arange(12, dtype=np.float32).reshape(4, 3) / 7,
        "experts": np.arange(18, dtype=np.float32).reshape(3, 2, 3) / 11,
        "gain": np.array([1.0, -0.0, 2.5], np.float32),
        "first_moment/embed": np.arange(12, dtype=np.uint16).reshape(4, 3),
        "updates/count": np.array([7], np.int64),
    }


def golden_tensors() -> dict[str, np.ndarray[Any, Any]]:
    return {
        "embed": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
        "final_norm.gain": np.array([1.0, -0.0], np.float32),
        "m/embed": np.full((2, 3), 1e-30, np.float32),
        "counts": np.array(5, np.int64),
        "none": np.zeros((0, 4), np.float32),
    }


def test_final_hash_sees_names_shapes_dtypes_and_bits() -> None:
    base = {"b": np.zeros((2, 3), np.float32), "a": np.zeros(1, np.float32)}
    others: list[dict[str, Any]] = [
        {"b": np.zeros((3, 2), np.float32), "a": base["a"]},
        {"b": np.zeros((2, 3), np.int32), "a": base["a"]},
        {"b": -base["b"], "a": base["a"]},
        {"b": base["b"], "c": base["a"]},
        {"b": base["b"]},
    ]
    hashes = [checkpoint.final_hash(whole_parts(tensors)) for tensors in [base, *others]]
    assert len(set(hashes)) == len(hashes)
    assert (
        checkpoint.final_hash(whole_parts({"a": base["a"], "b": np.zeros((3, 2), np.float32).T})) == hashes[0]
    )


def test_weights_of_other_tools_load_with_a_warning(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = {"a": torch.randn(3, 4), "b": torch.randn(5).to(torch.bfloat16)}
    save_file(tensors, tmp_path / "model.safetensors")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.warns(UserWarning, match="only its weights are read"):
            found = checkpoint.load_weights(path)
        assert (found["a"] == tensors["a"].numpy()).all()
        assert (found["b"] == tensors["b"].float().numpy()).all()
    folder = save(tmp_path / "ours", 8)
    assert checkpoint.load_weights(folder).keys() == {name for name in tiny_tensors() if "/" not in name}
    (tmp_path / "weights.pt").write_bytes(b"x")
    with pytest.raises(UserError, match="safetensors"):
        checkpoint.load_weights(tmp_path / "weights.pt")
    with pytest.raises(UserError, match="does not exist"):
        checkpoint.load_weights(tmp_path / "nothing")


MEMORY_PROBE = """
import sys
from mudd_core import _core
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = status("VmRSS")
_core.SafetensorsFile(sys.argv[1])
print(status("VmHWM") - before)
"""


def test_a_hostile_header_takes_little_memory(tmp_path: Path) -> None:
    """Read hundreds of thousands of empty tensors, the header that needs the most memory: 4 x file + 16 MiB."""
    entries = (f'"{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(400_000))
    header = ("{" + ",".join(entries) + "}").encode()
    path = tmp_path / "many.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    words = [sys.executable, "-c", MEMORY_PROBE, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(_core.__file__).parents[1])}
    found = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert int(found.stdout) <= 4 * path.stat().st_size + (16 << 20)


def test_large_tensors_have_a_checksum_for_every_block(tmp_path: Path) -> None:
    big = np.random.default_rng(0).integers(0, 256, (5 << 20) + 3, dtype=np.uint8)
    folder = checkpoint.save(tmp_path, 1, whole_parts({"big": big}), {}, **RUN)
    (part,) = manifest_reader.read_manifest(folder).tensors["big"].slices
    assert list(part.crcs) == _core.crc32c_blocks(big) and len(part.crcs) == 6
    path = folder / part.file
    data = bytearray(path.read_bytes())
    data[part.begin + (3 << 20) + 17] ^= 8
    path.write_bytes(data)
    into = {"big": np.zeros_like(big)}
    with pytest.raises(FormatError, match="'big', block 3") as caught:
        checkpoint.load_step(tmp_path, 1, into=whole_parts(into))
    assert caught.value.offset == part.begin + (3 << 20)
    assert not into["big"].any()  # nothing is written before everything is verified
