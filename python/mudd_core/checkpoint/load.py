"""Reading checkpoints: everything is verified before a value is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.manifest import Manifest, read_manifest
from mudd_core.checkpoint.steps import MANIFEST, SET_ASIDE, find_step, scan, step_folder


@dataclass(frozen=True)
class PassedOver:
    """A newer step that did not verify: which, and why."""

    step: int
    file: str
    reason: str

    @property
    def tensor(self) -> str:
        """The tensor the reason names, or an empty string."""
        found = re.match(r"tensor '(.*?)'(?:,|$)", self.reason)
        return found.group(1) if found else ""

    def __str__(self) -> str:
        return f"step {self.step} passed over: {self.file}: {self.reason}"


@dataclass(frozen=True)
class Checkpoint:
    """A verified step. passed_over lists the newer steps that automatic resume could not use."""

    step: int
    path: Path
    tensors: dict[str, NDArray[Any]]
    state: dict[str, Any]
    config_hash: str
    run_id: str
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def types(self) -> dict[str, str]:
        """The safetensors name of each tensor's dtype."""
        return {name: dtypes.name_of(array.dtype) or "" for name, array in self.tensors.items()}


def load_newest(
    checkpoints_dir: Path | str,
    *,
    run_id: str | None = None,
    into: Mapping[str, NDArray[Any]] | None = None,
    only: Callable[[str], bool] | None = None,
    up_to: int | None = None,
) -> Checkpoint | None:
    """The newest step that verifies, with each newer one that does not reported in `passed_over`.

    run_id: steps of another run are passed over. into: tensors of these names are read into these arrays
    (C-contiguous, writable, same dtype and shape), which are written only after the whole step has verified.
    only: which of the other names to read. up_to: no step after this one. None where there is no step at all;
    FormatError where there are some and none verifies; UserError where one is of a newer format (it must not be
    trained over).
    """
    passed: list[PassedOver] = []
    steps, strange = scan(checkpoints_dir)
    for step in sorted({*steps, *strange}, reverse=True):
        if up_to is not None and step > up_to:
            continue
        if step in strange:
            where = str(step_folder(checkpoints_dir, step))
            passed.append(PassedOver(step, where, f"it is {strange[step]}, expected a folder"))
        if step not in steps:
            continue
        folder = find_step(checkpoints_dir, step)
        number = _inode(folder)
        try:
            manifest = verify_step(folder, run_id=run_id)
            return _read(folder, manifest, into, only, tuple(passed))
        except FormatError as error:
            passed.append(PassedOver(step, error.file, error.reason))
        except OSError as error:
            passed.append(PassedOver(step, str(error.filename or folder), error.strerror or str(error)))
        if _inode(folder) != number or not number:  # a run that lives has just deleted or replaced it
            return load_newest(checkpoints_dir, run_id=run_id, into=into, only=only, up_to=up_to)
    if passed:
        reasons = "; ".join(map(str, passed))
        way_out = "restore it from a copy, or move it away to start anew"
        raise FormatError(str(checkpoints_dir), 0, f"no checkpoint verifies ({way_out}): {reasons}")
    return None


def load_step(
    checkpoints_dir: Path | str,
    step: int,
    *,
    run_id: str | None = None,
    into: Mapping[str, NDArray[Any]] | None = None,
    only: Callable[[str], bool] | None = None,
) -> Checkpoint:
    """Exactly this step, never another.

    UserError where it does not exist, FormatError where it does not verify; the rest as load_newest.
    """
    steps, strange = scan(checkpoints_dir)
    if step not in steps:
        if step in strange:
            where = step_folder(checkpoints_dir, step)
            raise UserError(f"{where} is {strange[step]}, expected a folder; put a copy of the step there")
        known = ", ".join(map(str, steps)) or "none"
        raise UserError(f"{checkpoints_dir} has no checkpoint of step {step}; steps there: {known}")
    folder = find_step(checkpoints_dir, step)
    try:
        return _read(folder, verify_step(folder, run_id=run_id), into, only, ())
    except OSError as error:
        raise FormatError(str(error.filename or folder), 0, error.strerror or str(error)) from error


def verify_step(folder: Path | str, *, run_id: str | None = None) -> Manifest:
    """Reads every byte of a step's folder and compares it with the manifest; returns the manifest.

    FormatError names file, tensor and reason; also for a folder whose manifest is of another step, and of
    another run where `run_id` is given.
    """
    folder = Path(folder)
    manifest = _manifest_of(folder)
    here = str(folder / MANIFEST)
    if folder.name.removesuffix(SET_ASIDE) != f"step-{manifest.step}":
        raise FormatError(here, 0, f"the manifest is of step {manifest.step}, the folder is {folder.name}")
    if run_id is not None and manifest.run_id != run_id:
        raise FormatError(here, 0, f"the manifest is of run {manifest.run_id}, this is run {run_id}")
    _verify_files(folder, manifest)
    return manifest


def verify_sealed(folder: Path | str) -> None:
    """Compare every byte of a complete folder with its manifest, whatever the folder's name is."""
    _verify_files(Path(folder), _manifest_of(Path(folder)))


def _manifest_of(folder: Path) -> Manifest:
    try:
        return read_manifest(folder)
    except FileNotFoundError:
        raise FormatError(str(folder / MANIFEST), 0, "the manifest is missing") from None


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _verify_files(folder: Path, manifest: Manifest) -> None:
    ranges: dict[str, list[tuple[str, int, int, list[int]]]] = {name: [] for name in manifest.files}
    for name, tensor in manifest.tensors.items():
        for part in tensor.slices:
            ranges[part.file].append((f"tensor {name!r}", part.begin, part.end, list(part.crcs)))
    for name, file in manifest.files.items():
        path = str(folder / name)
        try:
            _core.verify_file(path, file.bytes, file.crc32c, ranges[name])
        except FileNotFoundError:
            raise FormatError(path, 0, "the file is missing") from None
        _compare_header(path, name, manifest)


def _compare_header(path: str, name: str, manifest: Manifest) -> None:
    """The shard's own header must tell what the manifest tells: a lie that checksums cannot find."""
    shard = _core.SafetensorsFile(path)
    found = {tensor: (dtype, shape, begin, end) for tensor, dtype, shape, begin, end in shard.tensors()}
    wanted = {
        tensor: (about.dtype, part.shape, part.begin, part.end)
        for tensor, about in manifest.tensors.items()
        for part in about.slices
        if part.file == name
    }
    if found != wanted:
        raise FormatError(path, 8, "the shard's header and the manifest describe different tensors")
    metadata = shard.metadata
    if metadata.get("run_id") != manifest.run_id or metadata.get("step") != str(manifest.step):
        raise FormatError(
            path, 8, f"the shard is of run {metadata.get('run_id')}, step {metadata.get('step')}"
        )


def _read(
    folder: Path,
    manifest: Manifest,
    into: Mapping[str, NDArray[Any]] | None,
    only: Callable[[str], bool] | None,
    passed: tuple[PassedOver, ...],
) -> Checkpoint:
    given = dict(into or {})
    unknown = sorted(given.keys() - manifest.tensors.keys())
    if unknown:
        raise ValueError(f"[checkpoint] into: {unknown[0]!r} is not in {folder}")
    tensors: dict[str, NDArray[Any]] = {}
    for name, about in manifest.tensors.items():
        dtype = dtypes.numpy_dtype(about.dtype)
        if dtype is None:
            raise FormatError(str(folder / MANIFEST), 0, f"tensor {name!r} has dtype {about.dtype}")
        if name in given:
            tensors[name] = _checked_destination(name, given[name], dtype, about.shape)
        elif only is None or only(name):
            tensors[name] = np.empty(about.shape, dtype)
    for name, array in tensors.items():
        (part,) = manifest.tensors[name].slices
        _core.read_checked(
            str(folder / part.file), (f"tensor {name!r}", part.begin, part.end, list(part.crcs)), array
        )
    return Checkpoint(
        manifest.step, folder, tensors, manifest.state, manifest.config_hash, manifest.run_id, passed
    )


def _checked_destination(
    name: str, array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"[checkpoint] into[{name!r}]: expected {dtype} {shape}, got {array.dtype} {array.shape}"
        )
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"[checkpoint] into[{name!r}]: expected a writable C-contiguous array")
    return array
