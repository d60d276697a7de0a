"""mc.plan: parameters, FLOPs, memory, disk and time of a run before it starts; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from pathlib import Path

from mudd_core import _core
from mudd_core.base.arguments.known import known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.python_arguments import in_python
from mudd_core.base.show.tables import html_table
from mudd_core.base.units import bytes_text, duration, flops_text
from mudd_core.config import Config, mesh_of
from mudd_core.config.values import LARGEST_COUNT
from mudd_core.data.source_check import check_sources
from mudd_core.engine.argument_check import run_config, second_folder
from mudd_core.engine.memory import GIB
from mudd_core.run.build.place import Place
from mudd_core.run.build.plan_report import Planned, planned
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.own_code import run_copies
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True)
class Plan(Planned):
    """The plan of a run that mc.plan returns; it prints as `--plan` does.

    fits: True if memory and disk suffice. parameters: number of trained and frozen ones. flops_per_token,
    flops_per_step: of training. steps: None if only the data decide. memory: bytes of a rank by part.
    checkpoint_bytes: of one. seconds_per_step: an estimate.
    """

    name: str
    family: str

    @property
    def peak_bytes(self) -> int:
        """Bytes of memory of a rank at the peak."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float | None:
        """Estimated seconds of all steps, without validation and saving; None if the steps are unknown."""
        return None if self.steps is None else self.steps * self.seconds_per_step

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        rows = {
            "model": f"{self.family}, {self.parameters:,} parameters",
            "steps": "as many as the data have" if self.steps is None else f"{self.steps:,}",
            "FLOPs": f"{flops_text(self.flops_per_token)} a token, {flops_text(self.flops_per_step)} a step",
            "memory": f"{bytes_text(self.peak_bytes)} at the peak",
            "checkpoint": bytes_text(self.checkpoint_bytes),
            "time": f"about {self.seconds_per_step:.3g} s a step"
            + ("" if self.seconds is None else f", {duration(self.seconds)} in all"),
            "fits": "yes" if self.fits else "no; print(plan) says why",
        }
        return html_table(rows.items(), title=f"Plan of '{self.name}'")


@known_arguments("plan")
def plan(
    config: Config | str | Path,
    workdir: str | Path | None = None,
    *,
    ranks: int = 1,
    ranks_per_node: int | None = None,
    node_memory: float | None = None,
) -> Plan:
    """Return parameters, FLOPs, memory, disk and time of a run: `mc.plan("tiny.py").peak_bytes`.

    It trains and writes nothing. config: a config, the name of a config file, or the folder of a run. workdir: the
    folder of the run; None is runs/<name>. ranks: processes that would train; ranks_per_node of them share a node,
    None: all. node_memory: GiB of a node for this run; None is the free memory of this machine.
    Raise UserError for missing data and for fields or ranks that break a rule.
    """
    found, folder = _asked(config, workdir)
    world = _whole("ranks", ranks)
    on_a_node = world if ranks_per_node is None else min(world, _whole("ranks_per_node", ranks_per_node))
    mesh_of(found, world)
    check_sources(found)
    threads = _core.num_threads()
    try:
        parts = planned(found, folder, Place(world, on_a_node), _bytes(node_memory))
    finally:
        _core.set_num_threads(threads)
    values = {**vars(parts), "text": in_python(parts.text, {})}
    return Plan(**values, name=found.name, family=found.model.family)


def _asked(config: Config | str | Path, workdir: str | Path | None) -> tuple[Config, RunFolder]:
    """Return the config and the folder of the run to plan."""
    if not isinstance(workdir, str | Path | None):
        raise TypeError(f"[plan] workdir: expected a folder or None, got {workdir!r}")
    if isinstance(config, str | Path) and RunFolder(Path(config)).has_identity:
        run = RunFolder(Path(config))
        if workdir is not None:
            raise second_folder("plan", config, str(workdir))
        run_copies(run)
        return read_saved_config(run), run
    found = run_config(config, "plan")
    return found, RunFolder.of_config(found.name) if workdir is None else RunFolder.named(str(workdir))


def _whole(name: str, value: int) -> int:
    said = f"[plan] {name}: expected a whole number from 1, got {value!r}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(said)
    if not 1 <= value <= LARGEST_COUNT:
        raise UserError(said)
    return index(value)


def _bytes(memory: float | None) -> int:
    if memory is None:
        return 0
    said = f"[plan] node_memory: expected GiB above 0, or None, got {memory!r}"
    if isinstance(memory, bool) or not isinstance(memory, int | float):
        raise TypeError(said)
    if not 0 < memory < float("inf"):
        raise UserError(said)
    return int(GIB * memory)
