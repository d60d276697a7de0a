"""The first step at which the logs, the checkpoints or the final weights of two runs differ."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.own_files import plain_name
from mudd_core.run.store.run_folder import METRICS
from mudd_core.tools.compare.compared import ComparedRun, FirstDifference, first_difference
from mudd_core.tools.diff.settings import Setting, settings_that_differ
from mudd_core.tools.diff.states import States, compared_states, steps_of_checkpoints


@dataclass(frozen=True)
class Evidence:
    """The comparison of the files of two runs. logged: the first difference in the logs. states: common checkpoints.

    final_step: the step after which the final hashes of both runs differ; None if they are equal or unknown.
    """

    base: ComparedRun
    other: ComparedRun
    settings: list[Setting]
    logged: FirstDifference
    states: States
    final_step: int | None

    @property
    def step(self) -> int | None:
        """Return the first step that is known to differ: a logged value, a batch, a rate or a state; None: no step."""
        logged = (self.logged.step, self.logged.batch_step, self.logged.rate_step)
        found = (*logged, self.states.step, self.final_step)
        return min((step for step in found if step is not None), default=None)

    @property
    def through(self) -> int:
        """Return the last step that is known to be equal; 0 if there is none."""
        limit = self.step
        logged = [int(step) for step in self.logged.common if limit is None or step < limit]
        saved = [step for step in self.states.equal if limit is None or step < limit]
        return max([0, *logged, *saved])

    @property
    def affecting(self) -> list[Setting]:
        """Return the settings that differ and affect the training."""
        return [setting for setting in self.settings if not setting.free]


def evidence(base: ComparedRun, other: ComparedRun) -> Evidence:
    """Compare the files of two runs. Raise UserError for other families, and if the runs have no common step."""
    families = [plain_name(run.records.config.model.family) for run in (base, other)]
    if families[0] != families[1]:
        raise UserError(
            f"[diff] B: expected a run of the family {families[0]} as A, got {families[1]}; their nodes have nothing "
            f"in common. `compare` compares their curves"
        )
    found = Evidence(
        base,
        other,
        settings_that_differ(base, other),
        first_difference(base, other),
        compared_states(base, other),
        _final_step(base, other),
    )
    if not len(found.logged.common) and found.step is None and not found.states.equal:
        has = " and ".join(f"{run.letter} {_reached(run)}" for run in (base, other))
        notes = " ".join(found.states.notes)
        advice = f". {notes}" if notes else "; train further, or set train.log_every=1 in both"
        raise UserError(
            f"[diff] A and B: expected a step that both runs have logged or saved, got none: {has}{advice}"
        )
    return found


def _final_step(base: ComparedRun, other: ComparedRun) -> int | None:
    """Return the last step if both runs ended there with other weights."""
    hashes = [run.final_hash for run in (base, other)]
    steps = [run.records.summary.get("step") for run in (base, other)]
    ended = all(hashes) and steps[0] == steps[1] and isinstance(steps[0], int)
    return steps[0] if ended and hashes[0] != hashes[1] and isinstance(steps[0], int) else None


def losses_not_compared(found: Evidence) -> list[str]:
    """Return a sentence for each run without a log."""
    return [
        f"{run.letter} has no {METRICS}: no loss was compared."
        for run in (found.base, found.other)
        if not _has_log(run)
    ]


def _has_log(run: ComparedRun) -> bool:
    return run.updates.rows > 0 or run.records.folder.metrics_file.exists()


def _reached(run: ComparedRun) -> str:
    """Return the logged and saved steps of a run, for a message."""
    logged = [int(step) for step in run.updates["step"]] if run.updates.rows else []
    saved = steps_of_checkpoints(run)
    what = (
        [f"has logged {logged[0]:,} to {logged[-1]:,}"]
        if logged
        else ["has logged nothing" if _has_log(run) else f"has no {METRICS}"]
    )
    what += [f"saved {', '.join(f'{step:,}' for step in saved)}"] if saved else []
    return ", ".join(what)
