"""A Trainer in memory before any update of a saved run: mc.Trainer(run, at_step=N)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.paths import IMPORTED
from mudd_core.base.surroundings import is_command_line, notes_stream
from mudd_core.base.units import duration
from mudd_core.config import Config, LogConfig
from mudd_core.data.sources.access import cache_root
from mudd_core.run.loop import signals
from mudd_core.run.loop.session import Session
from mudd_core.run.loop.updates import Updates
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import read_facts
from mudd_core.run.store.last_step import last_step
from mudd_core.run.store.metrics import last_rows
from mudd_core.run.store.read_store import ReadStore
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

_LONG = 10.0  # seconds of training from which a note announces them


def checked_step(
    at_step: int,
    config: Config | str | Path | None,
    workdir: str | Path | RunStore | None,
    model: Model | None,
    world: int,
) -> tuple[str | Path, int]:
    """Return the folder of the run and the step as an int.

    Raise TypeError or UserError for another value, and if the other arguments of the Trainer do not fit it.
    """
    if isinstance(at_step, bool) or not hasattr(at_step, "__index__"):
        raise TypeError(f"[Trainer] at_step: expected a number of updates, got {at_step!r}")
    if not isinstance(config, str | Path):
        raise TypeError(
            f"[Trainer] at_step: expected the folder of a run as config, got {type(config).__name__}; type "
            f'mc.Trainer("runs/x", at_step={index(at_step)})'
        )
    for name, value in (("workdir", workdir), ("model", model)):
        if value is not None:
            raise UserError(
                f"[Trainer] at_step: expected no {name}, because the folder of the run has it; leave {name} out"
            )
    if world > 1:
        raise UserError(
            f"[Trainer] at_step: expected one process, got {world} ranks; the bits of an fp32 run do not depend on "
            "its ranks, so leave comm out"
        )
    if index(at_step) < 0:
        raise UserError(f"[Trainer] at_step: expected 0 or more, got {index(at_step)}")
    return config, index(at_step)


def read_only_run(saved: Config, folder: RunFolder, at_step: int) -> tuple[Config, ReadStore]:
    """Return the config and the store of a run for a Trainer in memory. Raise UserError for a step after its end."""
    require_reached(folder, at_step, "[Trainer] at_step")
    store = ReadStore(folder, at_step)
    if not store.has_checkpoint() and (folder.path / IMPORTED).is_dir():
        raise UserError(
            f"[Trainer] at_step: {folder} was imported, and its checkpoint of step 0 was deleted, so step {at_step} "
            f"cannot be derived; {_has(store)}"
        )
    return _in_memory(saved, store.folder), store


def require_reached(folder: RunFolder, step: int, argument: str) -> None:
    """Raise UserError if a run has not made this many updates. argument: for the message, as `[place] name`."""
    last = last_step(folder)
    done = 0 if last is None else last.step
    if step > done:
        raise UserError(
            f"{argument}: expected at most {done}, the last update of {folder} that is logged or saved, got {step}"
        )


def _has(store: ReadStore) -> str:
    steps = Checkpoints(store.folder).steps()
    return f"its checkpoints are of steps {', '.join(map(str, steps))}" if steps else "it has no checkpoint"


def _in_memory(config: Config, folder: RunFolder) -> Config:
    """Return the config of a run without the fields that write files, stop the run or need several ranks.

    All of them may change on resume, and none changes the bits.
    """
    train = replace(config.train, stop_at=0, profile="", save_async=False)
    mesh = replace(config.mesh, data=-1, fsdp=-1, expert=1, expert_room=0.0, zero=1)
    data = config.data
    root, name = cache_root(config), data_fingerprint(read_facts(folder))
    if root.is_relative_to(folder.path.resolve()) and not (root / name).is_dir():
        data = replace(data, cache_dir="")  # the cache was deleted, and its folder may not change
    sample = replace(config.sample, every=0)
    return replace(config, train=train, mesh=mesh, data=data, sample=sample, log=LogConfig())


def train_to_step(run: Session, updates: Updates) -> None:
    """Train a run in memory up to the step of its ReadStore; do nothing for another run.

    The rewinds of the run leave out the same batches as in the run, without the updates that they undid.
    """
    store, state = run.store, run.state
    if not isinstance(store, ReadStore):
        return
    _say_other_bits(store)
    if state.step_done > store.at_step:
        raise UserError(
            f"[Trainer] at_step: expected at least {state.step_done}, the step at which {store.folder} starts, got "
            f"{store.at_step}"
        )
    state.guard.known = store.rewinds
    _say_cost(run, store, store.at_step - state.step_done)
    while state.step_done < store.at_step:
        with signals.interrupt_later():
            if updates.make_update() is None:
                raise StopRequestedError(f"[train] stop requested; step {state.step_done + 1} was dropped")
    state.guard.follow(state.step_done)


def require_step_of_run(run: Session) -> None:
    """Raise UserError if a run in memory has made all updates of its config: the saved run has no further one."""
    done, steps = run.state.step_done, run.config.train.steps
    if isinstance(run.store, ReadStore) and done >= steps:
        raise UserError(
            f"[Trainer] step: expected at most {steps} updates, the train.steps of {run.store.folder}, got update "
            f"{done + 1}; at_step={steps - 1} opens the run before its last update"
        )


def _say_other_bits(store: ReadStore) -> None:
    if store.bits_note:
        print(
            f"warning: [Trainer] at_step: the updates here may have other bits than in the run: {store.bits_note}",
            file=notes_stream(),
        )


@dataclass(frozen=True)
class Cost:
    """The updates that a Trainer at a step makes again. start: the step of its checkpoint; 0 without one.

    seconds: about; 0 if the run has logged no rate. saved: there is a checkpoint.
    """

    start: int
    steps: int
    seconds: float
    saved: bool

    def __str__(self) -> str:
        about = f", about {duration(self.seconds)}" if self.seconds >= 1 else ""
        where = f"the checkpoint of step {self.start:,}" if self.saved else f"step {self.start:,}"
        return f"{self.steps:,} {'step' if self.steps == 1 else 'steps'} in memory from {where}{about}"


def cost_of(config: Config, folder: RunFolder, at_step: int) -> Cost:
    """Return the cost of mc.Trainer(folder, at_step=at_step)."""
    usable = [step for step in Checkpoints(folder).steps() if step <= at_step]
    start = max(usable, default=0)
    return Cost(start, at_step - start, (at_step - start) * _seconds_per_step(config, folder), bool(usable))


def _say_cost(run: Session, store: ReadStore, steps: int) -> None:
    """Print the time of the updates to make, if it is long or if there is no checkpoint to start from."""
    saved = store.has_checkpoint()
    cost = Cost(run.state.step_done, steps, steps * _seconds_per_step(run.config, store.folder), saved)
    if not steps or is_command_line() or (saved and cost.seconds < _LONG):
        return
    why = "" if saved else f"; {_has(store)}"
    print(f"note: [Trainer] at_step={store.at_step}: trains {cost}{why}", file=notes_stream())


def _seconds_per_step(config: Config, folder: RunFolder) -> float:
    """Return the seconds of an update, from the last rates in metrics.jsonl; 0 if it has none."""
    rates: Sequence[float] = [
        rate
        for row in last_rows(folder)
        if isinstance(rate := row.get("tokens_per_second"), float) and rate > 0
    ]
    return config.train.batch_size * config.train.seq_len / rates[0] if rates else 0.0
