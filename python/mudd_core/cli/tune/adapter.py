"""The adapters that a tuning begins with: a folder of PEFT, read once into the folder of the run."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import local
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.cli.tune.base import Base
from mudd_core.config import LoraConfig
from mudd_core.interop.peft_folder import read_adapter
from mudd_core.run.store.run_folder import SOURCE, RunFolder

_PLACE = "[tune] --adapter"


@dataclass(frozen=True)
class Adapter:
    """Adapters to begin with. name: as typed. path: of their values by our names. lora: their settings."""

    name: str
    path: str
    lora: LoraConfig


def adapter_of(name: str, base: Base, run: RunFolder) -> Adapter:
    """The adapters that --adapter names, copied into the folder of a run that is to begin.

    UserError for a folder that PEFT did not write, settings that are not computed, and adapters of another base;
    FormatError for damaged files.
    """
    folder = local(name, _PLACE)
    found = read_adapter(folder, base.model, _PLACE)
    to = run.adapter_folder
    source = {"path": str(folder.absolute())}
    weights = dict(sorted(found.weights.items()))
    write_folder(to, source, weights, shard_bytes=1 << 62, place="[tune]", names=(SOURCE, "adapter"))
    return Adapter(name, str(to), found.lora)


def require_same_adapter(name: str, run: RunFolder) -> None:
    """UserError where a run that has begun began with other adapters than --adapter names."""
    began = object_in(run.adapter_folder / SOURCE).get("path")
    if began != str(local(name, _PLACE).absolute()):
        raise UserError(
            f"{_PLACE}: {run} began with {began or 'adapters of its own'}, got {name}; give the same, or another "
            "--workdir"
        )
