"""The whole answer for two runs: what their files say, and the step that differs, replayed in both."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import notes_stream, typed_program
from mudd_core.base.types import JsonObject
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.evidence import Evidence, evidence
from mudd_core.tools.diff.node import node_part, node_values, precision_part
from mudd_core.tools.diff.parts import parts_of
from mudd_core.tools.diff.replay import Replay, replay
from mudd_core.tools.diff.settings import CODE_OF
from mudd_core.tools.diff.start import Start, starts
from mudd_core.tools.diff.states import steps_of_checkpoints
from mudd_core.tools.diff.values import values_of

_SAID = 10.0  # seconds of training that a note announces


@dataclass(frozen=True)
class Found:
    """The comparison of two runs.

    replay: None if they are equal or have different precisions, or if the step cannot be replayed; then error.
    """

    evidence: Evidence
    replay: Replay | None = None
    error: UserError | None = None

    @property
    def equal(self) -> bool:
        """Return whether the runs are equal through their last common step."""
        return self.evidence.step is None

    def parts(self) -> list[Part]:
        """Return the parts of the report."""
        made = precision_part(self.evidence) if self.replay is None else node_part(self.evidence, self.replay)
        return [*parts_of(self.evidence), *([] if made is None or self.equal else [made])]

    def values(self) -> JsonObject:
        """Return the object of --json."""
        made = None if self.replay is None else node_values(self.replay)
        return {**values_of(self.evidence), "replay": made}


def difference_of(
    base: ComparedRun, other: ComparedRun, *, train: bool = False, trust_code: bool = False
) -> Found:
    """Compare two runs, and replay the first step that differs in both to find the first value that differs.

    train: also if no checkpoint is common and that takes minutes. Raise UserError for runs that cannot be compared; an
    error of the step that is replayed is in the result.
    """
    found = evidence(base, other)
    if found.step is None or precision_part(found) is not None:
        return Found(found)
    try:
        return Found(found, _replayed(found, found.step, train=train, trust_code=trust_code))
    except UserError as error:
        return Found(found, error=error)


def _replayed(found: Evidence, last: int, *, train: bool, trust_code: bool) -> Replay:
    """Replay step `last` from the newest equal state; if the states differ there, look for an earlier step."""
    runs = (found.base, found.other)
    _require_one_code(found, last)
    start = starts(found, last)[0]
    if start.needs_leave and not train:
        raise _needs_leave(found, start)
    if start.seconds > _SAID:
        text = f"note: replaying steps {start.step + 1:,} to {last:,} of both runs: {start.cost}"
        print(text, file=notes_stream(), flush=True)
    made = replay(runs, start, trust_code=trust_code)
    if made.before_start and start.step > 0:
        return _replayed(found, start.step, train=train, trust_code=trust_code)
    return made


def _require_one_code(found: Evidence, last: int) -> None:
    """Raise UserError if one name means two codes of the user, because a process can run only one of them."""
    for setting in found.settings:
        field = setting.name.removeprefix(CODE_OF)
        if field == setting.name or field in {other.name for other in found.settings}:
            continue
        commands = [
            shlex.join(
                [
                    *typed_program(),
                    "diff",
                    "--record",
                    run.typed,
                    f"--step={max(1, last - 1)}",
                    f"--to={file}",
                ]
            )
            for run, file in ((found.base, "a.jsonl"), (found.other, "b.jsonl"))
        ]
        raise UserError(
            f"[diff] {field}: expected one code of this name, got two, and one process runs only one of them; record a "
            f"step of each run, then type diff a.jsonl b.jsonl: {'; '.join(commands)}"
        )


def _needs_leave(found: Evidence, start: Start) -> UserError:
    has = " and ".join(f"{run.letter} {_saved(run)}" for run in (found.base, found.other))
    command = shlex.join([*typed_program(), "diff", found.base.typed, found.other.typed, "--train"])
    return UserError(
        f"[diff] step {start.last:,}: expected a checkpoint before it that is equal in both runs, got none: {has}. To "
        f"replay this step takes {start.cost} from the start; type: {command}"
    )


def _saved(run: ComparedRun) -> str:
    steps = steps_of_checkpoints(run)
    return (
        f"has checkpoints of steps {', '.join(f'{step:,}' for step in steps)}"
        if steps
        else "has no checkpoint"
    )
