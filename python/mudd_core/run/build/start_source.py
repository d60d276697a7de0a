"""Sources of initial weights: another run's checkpoint, or safetensors. They are found, checked and read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mudd_core import checkpoint
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.other_folders import require_no_other
from mudd_core.base.paths import local
from mudd_core.base.storage import is_bucket, mirror_folder, readable, unreachable
from mudd_core.checkpoint.steps import MANIFEST, step_name, step_of
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.checkpoint.weights import SHARDED, is_sharded, stored_weights, weight_files
from mudd_core.config import Config
from mudd_core.dist import Comm
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.original_run import READER_STATE, original_run_text, reader_state_of
from mudd_core.run.store.remote_files import RemoteFiles
from mudd_core.run.store.run_folder import CHECKPOINTS, CONFIG, RunFolder
from mudd_core.run.store.saved_run import fetch_run

_WHAT = "[start] load_parameters_path"


@dataclass(frozen=True)
class Source:
    """Initial weights, read one tensor at a time.

    config: the config of their run, if known. state: True if moments are included. step: the step of the checkpoint; 0
    for weights only.
    """

    path: Path
    tensors: Mapping[str, AnyTensor]
    config: Config | None
    state: bool
    step: int = 0

    def slots(self, part: str) -> int:
        """Return the stored slots of a part of the first block: attn.q, attn.o or ffn; 0 if it has none."""
        key = self.tensors.get(f"blocks.0.{part}.key")
        return 0 if key is None else key.shape[0]


_THEIRS = re.compile(r"checkpoint_(\d+)|\d+")  # names of step folders in the original programs


def step_folder(path: Path) -> Path:
    """Return mudd_core's step folder for a path in an original program's form: `checkpoints/7[/items]`, `checkpoint_7`.

    Other paths, and existing ones, are returned unchanged.
    """
    theirs = path.parent if path.name == "items" else path
    found = _THEIRS.fullmatch(theirs.name)
    if path.exists() or found is None:
        return path
    folder = theirs.parent if theirs.parent.name == CHECKPOINTS else theirs.parent / CHECKPOINTS
    ours = folder / step_name(int(found[1] or found[0]))
    return ours if ours.is_dir() else path


def run_and_step(path: Path, state: bool) -> tuple[RunFolder | None, int]:
    """Return (work directory, step or -1 for the newest) for `path`; (None, -1) for safetensors."""
    run, step = RunFolder.holding(path)
    if run.checkpoint_folder.is_dir():
        return run, -1 if step is None else step
    if state:
        raise UserError(
            f"[start] {path}: expected a work directory or one of its step folders, which contain "
            "the state of the optimizer"
        )
    return None, -1


def check_source(path: str | Path, *, state: bool = False) -> None:
    """Raise UserError if read_source could not read `path`. No tensor is read."""
    path = step_folder(local(path, _WHAT))
    if not path.exists():
        raise UserError(
            "[start] load_parameters_path: expected a work directory, one of its step folders or a "
            f"safetensors file, got '{path}', which does not exist"
        )
    if (theirs := reader_state_of(path)) is not None and not _is_ours(path):
        raise UserError(f"{_WHAT}: {original_run_text(path, theirs)}")
    if not RunFolder(path).has_identity:
        require_no_other(path, f"{_WHAT}:", "a run of mudd_core")
    run, step = run_and_step(path, state)
    if run is None:
        weight_files(path)
    elif step < 0 and not Checkpoints(run).steps():
        raise UserError(f"[start] {path} has no checkpoint yet")


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that read_source would read, by name. The files are not verified.

    path: must pass check_source. The result is empty if the newest manifest cannot be read, because a training run may
    have replaced it.
    """
    run, step = run_and_step(path, False)
    try:
        if run is None:
            tensors = stored_weights(path, warns=False)
        else:
            checkpoints = Checkpoints(run)
            tensors = checkpoints.stored(checkpoints.newest() if step < 0 else step)
    except (FormatError, OSError):
        return {}
    return {name: tensor.shape for name, tensor in tensors.items()}


def _is_ours(path: Path) -> bool:
    """Return True if a path is a work directory of mudd_core, a step of one, or a weights file."""
    return path.is_file() or RunFolder(path).holds_run or (path / MANIFEST).is_file()


def read_source(
    path: str | Path, *, state: bool = False, comm: Comm | None = None, warns: bool = True
) -> Source:
    """Read a work directory (its newest checkpoint), a `step-<n>` folder, or safetensors (only weights).

    state: include the optimizer's moments; raise UserError if there are none. comm: all ranks call this, and verify the
    step together. warns: print a warning that safetensors have no checksums.
    """
    from mudd_core.run.store.json_files import read_saved_config

    path = step_folder(local(path, _WHAT))
    run, step = run_and_step(path, state)
    if run is None:
        return Source(path, stored_weights(path, warns=warns), None, False)
    if step < 0:
        found = checkpoint.load_newest(run.checkpoint_folder, into=(), comm=comm)
        if found is None:
            raise UserError(f"[start] {path} has no checkpoint yet")
    else:
        found = checkpoint.load_step(run.checkpoint_folder, step, into=(), comm=comm)
    config = read_saved_config(run) if run.holds_run else None
    wanted = {name: tensor for name, tensor in found.stored.items() if state or checkpoint.is_weight(name)}
    return Source(found.path, wanted, config, state, found.step)


def fetch_start(config: Config) -> None:
    """Download the run in a bucket named by start.load_parameters_path; do nothing for other paths.

    Raise UserError if it has no run of mudd_core.
    """
    url = readable(config.start.load_parameters_path, config.storage.map)
    if not is_bucket(url):
        return
    run = _run_url(url)
    try:
        names = RemoteFiles(run, _WHAT).names("")
    except UserError:
        raise
    except Exception as error:  # missing credentials and the network raise many types
        raise unreachable(run, _WHAT, error) from None
    if CONFIG not in names:
        if READER_STATE in {*names, *RemoteFiles(run, _WHAT).names(CHECKPOINTS)}:
            raise UserError(f"{_WHAT}: {original_run_text(run)}")
        raise UserError(
            f"{_WHAT}: expected a work directory of this program at '{run}', got "
            f"{', '.join(sorted(names)[:3]) or 'nothing'}; copy its safetensors files to a local "
            f"folder and pass that folder{'; ' + SHARDED if any(map(is_sharded, names)) else ''}"
        )
    fetch_run(RunFolder(mirror_folder(run), run))


def _run_url(url: str) -> str:
    """Return the work directory of the step that a URL names, in mudd_core's or a program's form; else the URL."""
    plain = url.rstrip("/").removesuffix("/items")
    folder, _, name = plain.rpartition("/")
    theirs = _THEIRS.fullmatch(name)
    in_steps = folder.endswith(f"/{CHECKPOINTS}") and (theirs is not None or step_of(name) is not None)
    # `checkpoint_7` may also be the name of a file in the run's folder
    if in_steps or (theirs is not None and theirs[1]):
        return folder.removesuffix(f"/{CHECKPOINTS}")
    return url.rstrip("/").removesuffix(f"/{CHECKPOINTS}")


def start_path(config: Config) -> Path:
    """Return the local path of start.load_parameters_path: a mapped path, a mirrored run, or a step."""
    path = readable(config.start.load_parameters_path, config.storage.map)
    return step_folder(local(path, _WHAT))


def base_path(config: Config, folder: RunFolder | None) -> Path:
    """Return the path of start.load_parameters_path, or the same name in the folder of a run that was moved."""
    path = start_path(config)
    inside = folder.path / path.name if folder is not None else path
    return inside if not path.exists() and inside.exists() else path


def check_start(config: Config, folder: RunFolder | None = None) -> None:
    """Raise UserError if a run cannot start from config.start. No tensor is read.

    folder: the folder of the run, which may have started with adapters of a base.
    """
    if not config.start.load_parameters_path:
        return
    path = base_path(config, folder)
    if config.tune.method == "lora" and folder is not None and folder.has_identity and not path.exists():
        raise UserError(
            f"{_WHAT}: the base of {folder} was {path}, which does not exist; name its new place "
            "with --start.load_parameters_path=FOLDER (tune: --base=FOLDER), whose files are "
            "compared by SHA-256"
        )
    check_source(path, state=config.start.keep_optimizer)
