"""Fuzz targets for models: settings, batches, weights and adapters."""

from __future__ import annotations

import importlib
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from checked import require


def run_settings(data: bytes, _folder: Path) -> None:
    """Compare the settings of an original program with the shapes of its weights; stop before memory is allocated."""
    from mudd_core import interop

    try:
        given = json.loads(data)
        page = importlib.import_module(f"mudd_core.interop.{given['system']}").SYSTEM
        settings = dict(given["settings"])
        arrays = {str(name): np.broadcast_to(np.float32(0), shape) for name, shape in given["shapes"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, ImportError):
        return  # not a file of settings
    if hasattr(page, "reading"):
        page, arrays = page.reading(settings, arrays)
    config = interop._model_config(page, settings, arrays)
    for name, shape in itertools.islice(page.shapes(config, settings).items(), 1000):
        if name in arrays and arrays[name].shape == tuple(shape):
            continue


def run_batch(data: bytes, _folder: Path) -> None:
    """Pass a batch of user arrays of any shape, dtype, stride and order, described by JSON."""
    from mudd_core.config import TransformerPPConfig
    from mudd_core.engine.batch_check import checked_batch

    try:
        described = json.loads(data)
        batch = {name: _array(one) for name, one in described.items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError):
        return
    config = TransformerPPConfig(vocab_size=50, max_seq_len=16, d_model=16, n_layer=1, n_head=2, d_ff=32)
    arrays, optional = checked_batch(batch, config)
    for name, array in arrays.items():
        require(array.dtype == np.int32 and array.flags.c_contiguous, "arrays are int32 and contiguous")
        require(array.shape == arrays["inputs"].shape, "arrays are of one shape")
        require(name == "targets" or name in optional or int(array.min()) >= 0, "ids are in the vocabulary")
        require(name in optional or int(array.max()) < 50, "ids are in the vocabulary")


def _array(one: Any) -> Any:
    """Return the array of {"values", "dtype", "order", "to": broadcast shape, "slice": steps}; else the JSON itself."""
    if not isinstance(one, dict) or "values" not in one:
        return one
    array = np.array(one["values"], dtype=one.get("dtype"), order=one.get("order", "C"))
    if "to" in one:
        array = np.broadcast_to(array, one["to"])
    return array[tuple(slice(None, None, step) for step in one.get("slice", []))]


def run_weights(data: bytes, folder: Path) -> None:
    """Read a folder of safetensors whose index file has the given bytes."""
    from mudd_core.checkpoint import load_weights

    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (folder / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    (folder / "model.safetensors.index.json").write_bytes(data)
    with warnings.catch_warnings():  # the files were not written by mudd_core
        warnings.simplefilter("ignore")
        load_weights(folder)


def run_adapter(data: bytes, folder: Path) -> None:
    """Read a folder of PEFT, given as its settings and its tensors of zeros: a shape by name."""
    from mudd_core.config import TransformerPPConfig
    from mudd_core.interop.peft_folder import read_adapter

    made = folder / "adapter"
    made.mkdir(exist_ok=True)
    try:
        given = json.loads(data)
        header, end = {}, 0
        for name, shape in given["tensors"].items():
            size = 4 * int(np.prod(shape, dtype=object))
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
            end += size
        if not 0 <= end <= 2**20:
            return
        text = json.dumps(header).encode()
        (made / "adapter_config.json").write_text(json.dumps(given["settings"]))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return  # no folder
    (made / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    config = TransformerPPConfig(vocab_size=50, max_seq_len=16, d_model=16, n_layer=2, n_head=2, d_ff=32)
    found = read_adapter(made, config, "fuzz")
    require(all(value.dtype == np.float32 for value in found.weights.values()), "weights are float32")
    require(found.lora.rank > 0 and bool(found.weights), "adapters have a rank and weights")
