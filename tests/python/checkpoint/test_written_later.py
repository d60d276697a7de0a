"""Tensors that are computed while they are written: the same bytes as ready ones, with one in memory at a time."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import _core

META = [("format", "pt")]


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"t{i}": rng.standard_normal((300, 7 + i)).astype(np.float32) for i in range(4)}


def test_the_file_is_that_of_ready_tensors(tmp_path: Path) -> None:
    alive: list[Any] = []

    def making(array: Any) -> Any:
        def make() -> Any:
            assert not any(ref() is not None for ref in alive), "an earlier tensor is still in memory"
            made = np.array(array)
            alive.append(weakref.ref(made))
            return made

        return make

    ready = [(name, "F32", array.shape, array) for name, array in arrays().items()]
    later = [(name, "F32", array.shape, making(array)) for name, array in arrays().items()]
    one = _core.write_shard(str(tmp_path), "ready.safetensors", ready, META)
    two = _core.write_shard(str(tmp_path), "later.safetensors", later, META)
    assert (one.bytes, one.crc, one.slices) == (two.bytes, two.crc, two.slices) and len(alive) == 4
    assert (tmp_path / "ready.safetensors").read_bytes() == (tmp_path / "later.safetensors").read_bytes()


def test_an_error_of_what_makes_a_tensor_is_raised(tmp_path: Path) -> None:
    def fails() -> Any:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        _core.write_shard(str(tmp_path), "a.safetensors", [("a", "F32", (2,), fails)], META)
    short = [("a", "F32", (2, 2), lambda: np.zeros(3, np.float32))]
    with pytest.raises(ValueError, match="tensor a: expected 16 bytes, got 12"):
        _core.write_shard(str(tmp_path), "b.safetensors", short, META)
    with pytest.raises(TypeError):
        _core.write_shard(str(tmp_path), "c.safetensors", [("a", "F32", (1,), 3)], META)
