"""Detect runs of MUDDFormer's own program by the state file of their data reader, and explain the alternative."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.members import object_in

READER_STATE = "skip_file_and_step.json"  # a file in the folder of checkpoints, and in each step's folder
_WAY_OUT = (
    "its Orbax checkpoints and the position of its data reader cannot be read. Convert its weights "
    "to a safetensors file as in docs/orbax-to-safetensors.md, then type: import FILE "
    "--system=muddformer_jax --settings=JSON --tokenizer=bytes --workdir=W, then "
    "load_parameters_path=W with a new run_name, which starts at the first batch"
)


def reader_state_of(path: Path) -> Path | None:
    """Return the reader's state file next to a step, in the folder of steps or in a run; None if there is none."""
    for folder in (path, path.parent, path / "checkpoints"):
        if (folder / READER_STATE).is_file():
            return folder / READER_STATE
    return None


def original_run_text(path: Path | str, state: Path | None = None) -> str:
    """Return the message about a path with such a run. state: the state file, if it is on this machine."""
    return f"{path} is a run of MUDDFormer's own program ({READER_STATE}{_place(state)}): {_WAY_OUT}"


def _place(state: Path | None) -> str:
    """Return the step and the position in the data, as far as the file has them."""
    found = object_in(state) if state is not None else {}
    names = ("checkpoint_step", "file_in_data", "step_in_file", "iter_file_nums")
    if not all(isinstance(found.get(name), int) for name in names):
        return ""
    step, group, batches, files = (found[name] for name in names)
    return f": checkpoint {step}, {batches} batches into file group {group} of {files} files each"
