"""Average the last checkpoints of a run. The result is the folder of a run whose only checkpoint has the mean weights.

Each weight is the mean of its values in the checkpoints: they are added in float64 in the order of their steps, divided
by their number, and rounded to fp32 once. Optimizer state and counters are copied from the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError, write_error
from mudd_core.base.paths import IMPORTED, folder_to_create
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import Array
from mudd_core.checkpoint import Checkpoint, is_weight, load_step, save, whole_parts
from mudd_core.checkpoint.steps import new_id
from mudd_core.checkpoint.stored import StoredTensor
from mudd_core.config import config_hash
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.engine.state import average_name
from mudd_core.engine.weight_average import AVERAGED
from mudd_core.run.records.facts import AVERAGED as AVERAGED_STEPS
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_facts, read_saved_config, run_id_of, write_config, write_facts
from mudd_core.run.store.own_code import TRUST
from mudd_core.run.store.run_folder import ADAPTER, BASE, LEASE, LOCK, RunFolder
from mudd_core.run.store.saved_run import named_run

_BLOCK = 1 << 20  # elements that are added at a time
_COPIED = (".json", ".model", ".txt", ".py", ".jinja")  # files of tokenizers and of the user's code
_WEIGHTS, _LOCKS = ".safetensors", shutil.ignore_patterns(LOCK, LEASE)
_LOGS = ("summary.json", "log.txt", "remote.json", "reference.json")


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    args, rest = (parser := _parser()).read(words)
    if not args.workdir:
        parser.require("RUN")
    given = {"--workdir": args.workdir, **({TRUST: ""} if args.trust_code else {})}
    folder = named_run(given, rest)[1]
    steps = _steps(folder, args.last)
    target = _target(folder, args.to)
    run_id = run_id_of(folder, read_facts(folder))
    found = [load_step(folder.checkpoint_folder, step, run_id=run_id, into=()) for step in steps]
    _write(folder, target, found, run_id)
    listed = f"{', '.join(map(str, steps[:-1]))} and {steps[-1]}" if len(steps) > 1 else str(steps[0])
    print(f"averaged the checkpoints of steps {listed} of {folder} in {target}; to use it:")
    for command in ("validate", "sample"):
        print(f"  {shlex.join([*typed_program(), command, str(target)])}")
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("average", __doc__ or "", run="--workdir")
    parser.add_argument("--workdir", metavar="DIR", help="folder of the run")
    parser.add_argument(
        "--last", type=whole_number(1), default=5, metavar="N", help="number of checkpoints; default 5"
    )
    parser.add_argument("--to", metavar="FOLDER", help="folder to create; default: <run>-average")
    return parser


def _target(folder: RunFolder, asked: str | None) -> Path:
    """Return the folder to create; raise UserError if it exists."""
    run = folder.path if folder.path.name not in ("", "..") else folder.path.resolve()
    target = folder_to_create(asked, "[average] --to") if asked else run.with_name(f"{run.name}-average")
    if os.path.lexists(target):
        raise UserError(f"[average] --to: expected a new folder, got {target}; type another --to=FOLDER")
    return target


def _steps(folder: RunFolder, last: int) -> list[int]:
    """Return the steps of the last checkpoints; raise UserError if the run has fewer."""
    saved = Checkpoints(folder).steps()
    if len(saved) < min(2, last):
        has = f"only the checkpoint of step {saved[0]}" if saved else "no checkpoint"
        raise UserError(
            f"[average] {folder} has {has}, and a mean needs at least two; train with train.save_every=N and "
            f"train.keep_last={max(2, last)}"
        )
    if len(saved) < last:
        has = f"steps {', '.join(map(str, saved))}" if saved else "none"
        raise UserError(
            f"[average] --last: expected at most {len(saved)}, the checkpoints of {folder} ({has}), got {last}; to "
            f"keep more, train with train.save_every=N and train.keep_last={last}"
        )
    return saved[-last:]


def _write(folder: RunFolder, target: Path, found: Sequence[Checkpoint], run_id: str) -> None:
    """Write the run, complete or not at all; raise SaveError if that fails."""
    newest, config = found[-1], read_saved_config(folder)
    stored = [one.stored for one in found]
    tensors = {name: _mean_of(name, stored, newest.path) for name in newest.stored if is_weight(name)}
    rest = {name: tensor for name, tensor in newest.stored.items() if _is_kept(name, tensors)}
    part = RunFolder(target.absolute().with_name(f"{target.name}.part-{new_id()}"))
    try:
        part.path.mkdir(parents=True)
        for file in sorted(folder.path.iterdir()):
            if file.is_file() and file.suffix in _COPIED and file.name not in _LOGS:
                shutil.copyfile(file, part.path / file.name)
        _copy_folders(folder, part)
        write_config(part, config)
        write_facts(part, {**read_facts(folder), AVERAGED_STEPS: [one.step for one in found]})
        state = {**newest.state, "anchor": newest.step}
        parts = whole_parts({**tensors, **rest})
        save(
            part.checkpoint_folder, newest.step, parts, state, config_hash=config_hash(config), run_id=run_id
        )
        part.path.rename(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        shutil.rmtree(part.path, ignore_errors=True)


def _copy_folders(folder: RunFolder, part: RunFolder) -> None:
    """Copy the imported files, the imported base and the initial adapters of a run, if it has them."""
    ours, theirs = part.path, folder.path
    for name in (IMPORTED, BASE, ADAPTER):
        if (theirs / name).is_dir():
            shutil.copytree(theirs / name, ours / name, copy_function=_linked, ignore=_LOCKS)


def _linked(source: str, target: str) -> None:
    """Link a file of weights, which nothing changes, so that it takes no space again; copy any other file."""
    with contextlib.suppress(OSError):  # the target may be on another disk, or on one without hard links
        if source.endswith(_WEIGHTS):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _is_kept(name: str, weights: Mapping[str, StoredTensor]) -> bool:
    """Return True for state that is copied: not a weight, and not the mean of train.average, which is of other
    steps."""
    return not is_weight(name) and name != AVERAGED and name not in map(average_name, weights)


def _mean_of(name: str, stored: Sequence[Mapping[str, StoredTensor]], newest: Path) -> StoredTensor:
    """Return the mean of a weight; raise FormatError if the checkpoints do not have the same tensor."""
    last = stored[-1][name]
    for one in stored:
        if name not in one or (one[name].shape, one[name].dtype) != (last.shape, last.dtype):
            raise FormatError(
                str(newest), 0, f"tensor {name!r} is not the same kind of tensor in all checkpoints"
            )
    tensors = [one[name] for one in stored]
    if last.dtype != np.float32:  # a frozen weight, which no step changes
        return last
    return StoredTensor(last.shape, np.float32, partial(_mean, tensors))


def _mean(tensors: Sequence[StoredTensor], begin: int, end: int) -> Array:
    """Return elements [begin, end) of the mean, in float32."""
    out = np.empty(end - begin, np.float32)
    for at in range(begin, end, _BLOCK):
        stop = min(at + _BLOCK, end)
        total = np.zeros(stop - at, np.float64)
        for tensor in tensors:
            total += tensor.elements(at, stop)
        out[at - begin : stop - begin] = total / len(tensors)
    return out
