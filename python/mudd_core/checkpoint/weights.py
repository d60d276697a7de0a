"""Load weights alone from any safetensors file, of mudd_core or of another tool."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import local
from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.load import load_step
from mudd_core.checkpoint.state_part import is_weight
from mudd_core.checkpoint.steps import MANIFEST, step_of
from mudd_core.checkpoint.stored import Place, StoredTensor
from mudd_core.checkpoint.weights_folder import indexed_files, require_indexed

_CONVERTED = (
    "open it with the program that wrote it, call model.save_pretrained(FOLDER) there, and pass FOLDER here"
)
SHARDED = (
    "a checkpoint of torch_xla (.metadata, *.distcp) cannot be read, because its index is a pickle: "
    f"{_CONVERTED}"
)
_SINGLE = "model.safetensors"
_BESIDE_MODEL = ("adapter_model", "optimizer")
_REFUSED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


def load_weights(path: Path | str, *, keep_bf16: bool = False) -> dict[str, Array]:
    """Return the weights in a safetensors file, a folder of such files, or a `step-<n>` folder of mudd_core.

    A step is verified. Other files have no checksums and no optimizer state, and a warning says so. BF16 is converted
    to float32 exactly, unless keep_bf16 returns it unchanged (dtypes.BF16). Raise UserError for a missing path and for
    pickled formats, which are never opened, and FormatError for a malformed file.
    """
    found = {name: np.asarray(tensor) for name, tensor in stored_weights(path).items()}
    return found if keep_bf16 else {name: widened(array) for name, array in found.items()}


def stored_weights(path: Path | str, *, warns: bool = True) -> dict[str, StoredTensor]:
    """Return the weights of load_weights in their stored form, to be read one at a time.

    warns: warn that files of other tools contain only weights.
    """
    path = local(path, "[weights] path")
    files = weight_files(path)
    if not files:
        if (step := step_of(path.name)) is None:
            raise UserError(
                f"[weights] path: expected a folder named step-<n>, got {path}; rename the folder"
            )
        tensors = load_step(path.parent, step, into=()).stored
        return {name: tensor for name, tensor in tensors.items() if is_weight(name)}
    if warns:
        warnings.warn(
            f"{path} is not a checkpoint of mudd_core: only its weights are read, without checksums",
            stacklevel=3,
        )
    tensors = stored_in(files)
    if files != [path / _SINGLE]:
        require_indexed(path, tensors)
    return tensors


def stored_in(files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of safetensors files in stored form; raise FormatError if two files have the same one."""
    found: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in _tensors_of(file).items():
            if name in found:
                raise FormatError(str(file), 8, f"tensor {name!r} is in two files")
            found[name] = tensor
    return found


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files that load_weights reads; an empty list for a `step-<n>` folder of mudd_core.

    Raise UserError for a missing path, a pickled format and a folder without such files.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.suffix in _REFUSED and not path.is_dir():
        raise UserError(
            f"{path} is a pickle, which runs code when opened; convert it to safetensors "
            "(safetensors.torch.save_file) and pass that file"
        )
    if (path / MANIFEST).exists():
        return []
    files = _files_of(path) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path} has no .safetensors file{_instead(path)}")
    return files


def _instead(folder: Path) -> str:
    """Return a hint about other weights in a folder without safetensors; empty if none have a known format."""
    if any(is_sharded(file.name) for file in (*folder.glob("*"), *folder.glob("*/*"))):
        return f"; {SHARDED}"
    pickled = next((file.name for file in sorted(folder.glob("*")) if file.suffix in _REFUSED), "")
    return f"; {pickled} is a pickle, which runs code when opened: {_CONVERTED}" if pickled else ""


def is_sharded(name: str) -> bool:
    """Return whether a file is part of a torch.distributed checkpoint, as torch_xla's CheckpointManager writes it."""
    return name == ".metadata" or name.endswith(".distcp")


def _files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that contain its model, chosen as transformers does.

    These are model.safetensors, else the files of the index, else all other safetensors files of the model.
    """
    if (single := folder / _SINGLE).is_file():
        return [single]
    if (named := indexed_files(folder)) is not None:
        return named
    files = sorted(folder.glob("*.safetensors"))
    return [file for file in files if not _is_of_another(file.name)] or files


def _is_of_another(name: str) -> bool:
    """Return whether a file has an adapter, an optimizer's state, or a second copy of the model."""
    return is_consolidated(name) or name.startswith(_BESIDE_MODEL) or ".fp16" in name


def is_consolidated(name: str) -> bool:
    """Return whether a file has a name like Mistral's own files, which use the tensor names of Mistral's program."""
    return name.startswith("consolidated") and name.endswith(".safetensors")


def _tensors_of(path: Path) -> dict[str, StoredTensor]:
    try:
        file = _core.SafetensorsFile(str(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    out: dict[str, StoredTensor] = {}
    for index, (name, dtype, shape, begin, _) in enumerate(file.tensors()):
        held = dtypes.numpy_dtype(dtype)
        if held is None:
            raise FormatError(str(path), 8, f"tensor {name!r} has dtype {dtype}, which NumPy does not have")
        out[name] = StoredTensor(shape, held, partial(_read, file, index, shape, held), Place(path, begin))
    return out


def _read(
    file: _core.SafetensorsFile,
    index: int,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    begin: int,
    end: int,
) -> Array:
    array = np.empty(shape, dtype)
    file.read_tensor(index, array)
    return array.reshape(-1)[begin:end]


def widened(array: Array) -> Array:
    """Return BF16 as float32, other types unchanged."""
    return dtypes.as_float32(array) if array.dtype == dtypes.BF16 else array
