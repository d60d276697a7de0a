"""The checkpoints that two runs have at the same steps: equal states, and the first one that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Json
from mudd_core.checkpoint.manifest import Manifest, Tensor
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.steps import MANIFEST
from mudd_core.checkpoint.stored import stored_tensors
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.compare.reading import steps_in

_AT_ONCE = 1 << 22  # elements that are read at a time
# Keys of a checkpoint's state that decide later updates, in addition to its tensors.
_COUNTERS = ("step", "skipped_steps", "skips_in_row", "rewinds", "spike_losses", "spike_norms")


@dataclass(frozen=True)
class States:
    """The common checkpoints of two runs. equal: steps with equal states, up to the first one that differs.

    step: the first step with other states; None if there is none. names: its tensors and counters that differ. same:
    the number of its tensors that are equal. notes: sentences about checkpoints that cannot be read.
    """

    equal: tuple[int, ...] = ()
    step: int | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    same: int = 0

    @property
    def newest_equal(self) -> int | None:
        """Return the newest step with equal states; None if there is none."""
        return self.equal[-1] if self.equal else None


def compared_states(base: ComparedRun, other: ComparedRun) -> States:
    """Compare the checkpoints that both runs have, by the checksums in their manifests.

    Weights are read only if the runs were saved by different numbers of ranks, because then the checksums are of
    different parts.
    """
    equal, notes = list[int](), list[str]()
    for step in sorted(set(saved_steps(base)) & set(saved_steps(other))):
        if damaged := [text for run in (base, other) if (text := _damage(run, step))]:
            notes += damaged
            continue
        try:
            names = unequal_tensors(folder_of(base, step), folder_of(other, step))
        except (FormatError, OSError) as error:  # a run in progress may delete a checkpoint meanwhile
            notes.append(f"The checkpoints of step {step:,} cannot be compared: {_reason(error)}.")
            continue
        if names:
            tensors = read_manifest(folder_of(base, step)).tensors.keys()
            return States(tuple(equal), step, tuple(names), tuple(notes), len(tensors - set(names)))
        equal.append(step)
    return States(tuple(equal), notes=tuple(notes))


def saved_steps(run: ComparedRun) -> list[int]:
    """Return the steps of the run's checkpoints, up to the step that the user named; ascending."""
    steps = steps_in(run.records.folder)
    return [step for step in steps if run.until is None or step <= run.until]


def steps_of_checkpoints(run: ComparedRun) -> list[int]:
    """Return the steps of the checkpoints whose manifest is whole, up to the step that the user named; ascending."""
    return [step for step in saved_steps(run) if not _damage(run, step)]


def _damage(run: ComparedRun, step: int) -> str:
    """Return a sentence about a checkpoint whose manifest is missing or damaged; empty if it is whole."""
    folder = folder_of(run, step)
    try:
        read_manifest(folder)
    except FileNotFoundError:
        why = f"{folder / MANIFEST} is missing"
    except (FormatError, OSError) as error:
        why = _reason(error)
    else:
        return ""
    return f"The checkpoint of step {step:,} in {run.letter} is damaged and was not compared: {why}."


def _reason(error: FormatError | OSError) -> str:
    # The core's message has the path already; str() of an OSError would repeat it.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def folder_of(run: ComparedRun, step: int) -> Path:
    """Return the folder of a checkpoint."""
    return run.records.folder.step_folder(step)


def unequal_tensors(one: Path, two: Path) -> list[str]:
    """Return the names of the tensors and counters that differ in two checkpoints; tensors in only one differ."""
    manifests = read_manifest(one), read_manifest(two)
    left, right = (manifest.tensors for manifest in manifests)
    names = list(dict.fromkeys((*left, *right)))
    found = [name for name in names if _differs(name, (one, two), manifests)]
    states = tuple(manifest.state for manifest in manifests)
    return [*found, *(f"counter {name}" for name in _COUNTERS if _counter_differs(name, *states))]


def _counter_differs(name: str, one: Mapping[str, Json], two: Mapping[str, Json]) -> bool:
    # Checkpoints of early versions lack some counters.
    return name in one and name in two and one[name] != two[name]


def _differs(name: str, folders: tuple[Path, Path], manifests: tuple[Manifest, Manifest]) -> bool:
    left, right = (manifest.tensors.get(name) for manifest in manifests)
    if left is None or right is None or (left.dtype, left.shape) != (right.dtype, right.shape):
        return True
    if _parts(left) == _parts(right):
        return _checksums(left) != _checksums(right)
    return any(not np.array_equal(one, two) for one, two in _pieces(name, folders, manifests))


def _parts(tensor: Tensor) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(part.offsets, part.shape) for part in tensor.slices]


def _checksums(tensor: Tensor) -> list[tuple[int, ...]]:
    return [part.crcs for part in tensor.slices]


def _pieces(
    name: str, folders: tuple[Path, Path], manifests: tuple[Manifest, Manifest]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the same elements of a tensor of two checkpoints as bytes, a piece at a time."""
    one, two = (
        stored_tensors(folder, manifest)[name] for folder, manifest in zip(folders, manifests, strict=True)
    )
    for begin in range(0, one.size, _AT_ONCE):
        end = min(one.size, begin + _AT_ONCE)
        yield one.elements(begin, end).view(np.uint8), two.elements(begin, end).view(np.uint8)
