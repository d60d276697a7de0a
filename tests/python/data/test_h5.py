"""The HDF5 module, compared with h5py and used without the core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mudd_core import _h5
from mudd_core.base.errors import FormatError
from mudd_core.data import TokenCache
from text_settings import SOURCES


@pytest.mark.parametrize("order", [("h5py", "mudd_core._h5"), ("mudd_core._h5", "h5py")])
def test_h5py_and_ours_live_together(cache: TokenCache, order: tuple[str, str]) -> None:
    code = f"""
import importlib, sys
for name in {order!r}: importlib.import_module(name)
import h5py
from mudd_core import _h5
with _h5.File.open(sys.argv[1]) as f: ours = f.read("valid/ids")
with h5py.File(sys.argv[1]) as f:
    assert (f["valid/ids"][:] == ours).all() and len(ours) > 100
    assert f["train/ids"].chunks is None and f["train/ids"].compression is None
    assert f.attrs["train_tokens"] == f["train/ids"].size
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code, str(cache.file)], env=env, check=True)


def test_offset_is_where_h5py_finds_the_bytes(cache: TokenCache) -> None:
    import h5py

    with h5py.File(cache.file) as f:
        assert f["train/ids"].id.get_offset() == cache.train.offset
    assert _h5.dataset_offset(str(cache.file), "train/ids") == (
        cache.train.offset,
        cache.train.count,
        "uint16",
    )
    raw = cache.file.read_bytes()[cache.train.offset :][: 2 * cache.train.count]
    assert raw == cache.tokens("train").tobytes()


def test_only_contiguous_datasets_have_an_offset(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "x.h5", "w", libver=("v110", "v110")) as f:
        f.create_dataset("chunked", data=np.arange(1000), chunks=(10,))
        f.create_dataset("flat", data=np.arange(1000))
    with pytest.raises(FormatError, match="not contiguous"):
        _h5.dataset_offset(str(tmp_path / "x.h5"), "chunked")
    offset, count, dtype = _h5.dataset_offset(str(tmp_path / "x.h5"), "flat")
    raw = np.frombuffer((tmp_path / "x.h5").read_bytes(), dtype, count, offset)
    assert (raw == np.arange(1000)).all()


def test_attributes_of_another_kind_are_refused(tmp_path: Path) -> None:
    """Include the fuzzer's case: the library writes all strings of the array into the space of one."""
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.attrs["texts"] = np.full(300, b"x" * 50)
        f.attrs["latin"] = np.bytes_(b"caf\xe9")
        f.attrs["growing"] = "of variable length"
    with _h5.File.open(str(tmp_path / "x.h5")) as ours:
        for name in ("texts", "growing"):
            with pytest.raises(FormatError, match="is not one text"):
                ours.text(name)
        with pytest.raises(FormatError, match="is not UTF-8"):
            ours.text("latin")


def test_no_memory_is_taken_for_what_is_not_stored(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("chunks", shape=(2**45,), chunks=(2**20,), dtype="u2")
        f.create_dataset("late", shape=(2**45,), dtype="u2")
    with _h5.File.open(str(tmp_path / "x.h5")) as ours:
        for name in ("chunks", "late"):
            with pytest.raises(FormatError, match="is not contiguous"):
                ours.read(name)


def test_core_does_not_load_hdf5() -> None:
    code = (
        "import mudd_core._core, mudd_core.data;"
        "maps = open('/proc/self/maps').read(); assert 'hdf5' not in maps;"
        "import mudd_core._h5; assert 'hdf5' in open('/proc/self/maps').read()"
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
