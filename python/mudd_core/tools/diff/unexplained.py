"""Sentences about steps that are equal when they are replayed, although the runs have recorded other values."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import typed_program
from mudd_core.run.store.saved_run import run_and_step
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.evidence import Evidence
from mudd_core.tools.diff.other_bits import other_bits, record_commands
from mudd_core.tools.diff.replay import Replay
from mudd_core.tools.diff.reproduced import OtherTensor, Reproduced
from mudd_core.tools.diff.ulps_text import ulps_text


def title_of_equal(seen: Evidence, found: Replay) -> str:
    """Return the title of a part about replayed steps without a difference."""
    changed = [one for one in found.reproduced if _changed(seen, one)]
    if len(changed) == 1:
        what = "weights" if _same_batch(seen, found.step) else "weights or the batch"
        return f"first value that differs: in step {found.step:,}, the {what} of {changed[0].letter} before the step"
    through = f"steps {found.start.step + 1:,} to {found.step:,} are equal here"
    if found.step == found.start.step + 1:
        through = f"step {found.step:,} is equal here"
    other = [one.letter for one in found.reproduced if not one.equal]
    if not other:
        return f"{through}, and both runs recorded these values"
    if len(other) == len(found.reproduced):
        return f"{through}, but neither run recorded these values"
    return f"{through}, and {other[0]} recorded others"


def notes_of_equal(seen: Evidence, found: Replay) -> Iterator[str]:
    """Yield sentences: what each run recorded, the possible causes, and the next command."""
    for one in found.reproduced:
        yield _sentence(one)
        if _changed(seen, one):
            yield _since(one, found)
    if all(one.equal for one in found.reproduced):
        return
    runs = {run.letter: run for run in (seen.base, seen.other)}
    other = [runs[one.letter] for one in found.reproduced if not one.equal]
    same = [runs[one.letter] for one in found.reproduced if one.equal]
    if all(map(other_bits, other)):  # the reason is printed below
        yield from record_commands((seen.base, seen.other), found.step)
        return
    yield f"The cause is one of these: {causes()}."
    if len(other) == 1 and same and not any(is_url(run.typed) for run in (*other, *same)):
        yield f"To see if {other[0].letter} gets other values again, train it again where and how it was trained:"
        yield from _again(other[0], same[0], found.step)


def causes() -> str:
    """Return the possible causes that no run records, separated by commas."""
    return ", ".join(
        [
            "a callback or a program that changed weights",
            "other code",
            "a resume with another version",
            "a changed file",
            "or a fault of a machine",
        ]
    )


def _again(other: ComparedRun, same: ComparedRun, step: int) -> Iterator[str]:
    """Yield the commands that train a run again up to a step, and compare it."""
    path, again = run_and_step(other.typed)[0], f"{run_and_step(other.typed)[0]}-again"
    fields = ["train.log_every=1", f"train.stop_at={step}"]
    yield f"  {shlex.join([*typed_program(), f'--config={path}/config.json', f'--workdir={again}', *fields])}"
    yield f"  {shlex.join([*typed_program(), 'diff', run_and_step(same.typed)[0], again])}"


def _sentence(found: Reproduced) -> str:
    """Return what the own records of a run say about the values that were made here."""
    if found.equal:
        return (
            f"This machine and version reproduce {found.letter}: loss and gradient norm of {found.steps:,} logged "
            f"step{'s' * (found.steps != 1)} have the same bits."
        )
    return f"{found.letter} was made otherwise: {'; '.join(_others(found))}."


def _same_batch(seen: Evidence, step: int) -> bool:
    """Return whether both runs have logged the same hash of the ids of a step."""
    one, two = (run.batch_hashes.get(step) for run in (seen.base, seen.other))
    return one is not None and one == two


def _changed(seen: Evidence, found: Reproduced) -> bool:
    """Return whether the weights of a run, or its batch, were other ones before the step.

    Its loss and its gradient norm differ in a step whose predecessor is equal, and the update comes after both.
    """
    run = seen.base if found.letter == seen.base.letter else seen.other
    return found.logged is not None and found.both and found.logged > 1 and not other_bits(run)


def _since(found: Reproduced, made: Replay) -> str:
    """Return since when the weights have changed."""
    assert found.logged is not None
    step, before = found.logged, found.logged - 1
    if made.start.common and made.start.step == before:
        saved = f"the checkpoint of step {before:,} was saved"
        return f"Its weights changed after {saved}, before step {step:,} started."
    if found.before:
        return (
            f"Its weights changed after the gradients of step {before:,} were computed, or earlier by too little to "
            "change its logged values."
        )
    return f"Its weights changed after step {made.start.step:,}."


def _others(found: Reproduced) -> Iterator[str]:
    if found.logged is not None:
        yield f"its log has other values from step {found.logged:,}"
    if (other := found.saved) is not None:
        yield _tensor(other)
    elif found.final:
        yield "its final hash is another one"


def _tensor(other: OtherTensor) -> str:
    index = f", the first at [{', '.join(map(str, other.first_index))}]" if other.first_index else ""
    size = "" if math.isnan(other.ulps) else f", by at most {ulps_text(other.ulps)}"
    return (
        f"its checkpoint of step {other.step:,} has other values in {other.name}: {other.count:,} of {other.size:,} "
        f"elements{index}{size}"
    )
