"""The comparison of the files of two runs, as parts with tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mudd_core.run.report.page.records import is_running
from mudd_core.tools.compare import Part, with_head
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.compare.parts import difference_part, runs_part
from mudd_core.tools.compare.settings import SEAL, UNKNOWN
from mudd_core.tools.diff.evidence import Evidence, losses_not_compared
from mudd_core.tools.diff.settings import Setting

_LETTERS = ("A", "B")
_FREE = " *"
_NAMED = 3  # tensors that a sentence names


def parts_of(found: Evidence) -> list[Part]:
    """Return the parts about the runs, their settings, and the first step that differs."""
    runs = replace(runs_part((found.base, found.other)), notes=list(_in_progress(found)))
    return [runs, settings_part(found.settings, same_path=_same_path(found)), step_part(found)]


def _in_progress(found: Evidence) -> Iterator[str]:
    for run in (found.base, found.other):
        if is_running(run.records.folder):
            yield (
                f"{run.letter} is in progress: it is compared through its last complete step, {run.last_step:,}."
            )


def _same_path(found: Evidence) -> bool:
    return found.base.records.config.data.path == found.other.records.config.data.path


def settings_part(settings: list[Setting], *, same_path: bool = False) -> Part:
    """Return the table of settings that differ. same_path: both runs have one data.path."""
    if not settings:
        text = "Config, data, tokenizer, code, level, seeds and resumes are recorded as equal."
        return Part("settings: equal", (), [text])
    rows = [[one.name + _FREE * one.free, one.kind, one.base, one.other] for one in settings]
    notes = ["* does not affect the training"] if any(one.free for one in settings) else []
    if same_path and _only_text(settings):
        notes.append("data.path is equal, but the text at this path changed between the starts of the runs.")
    title = f"settings: {len(rows)} differ{'s' * (len(rows) == 1)}"
    return Part(title, with_head("setting", ("kind", *_LETTERS), rows), notes, words=True)


def _only_text(settings: list[Setting]) -> bool:
    """Return whether the content of the token caches differs, but no tokenizer and no field that shapes them."""
    seals = [one for one in settings if one.name == SEAL]
    known = any(UNKNOWN not in (one.base, one.other) for one in seals)
    return known and not any(
        one.kind == "tokenizer" or (one.name.startswith("data.") and not one.free) for one in settings
    )


def step_part(found: Evidence) -> Part:
    """Return the part about the first step that differs, or about the last step that is equal."""
    logged = difference_part(found.base, found.other, found.logged)
    saved = [*losses_not_compared(found), *_states(found)]
    if found.step is None:
        notes = [note for note in logged.notes if len(found.logged.common)]
        return Part(f"equal through step {found.through:,}", (), [*notes, *saved, *_lengths(found)])
    title = f"first step that differs: {found.step:,}"
    rows = logged.rows if found.logged.step == found.step else ()
    notes = (
        []
        if rows or found.logged.step is None
        else [f"The loss differs first at step {found.logged.step:,}."]
    )
    return Part(title, rows, [*notes, *logged.notes, *saved, *_likely(found)])


def _states(found: Evidence) -> Iterator[str]:
    states = found.states
    yield from states.notes
    if states.equal:
        yield f"The checkpoints of step {_listed(states.equal)} are equal in both."
    if states.step is not None:
        more = len(states.names) - _NAMED
        names = ", ".join(states.names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        same = (
            f"; {states.same:,} other tensor{'s are' if states.same != 1 else ' is'} equal"
            if states.same
            else ""
        )
        yield f"The checkpoints of step {states.step:,} differ in {names}{same}."
    if found.final_step is not None and states.step is None:
        yield f"The final hashes after step {found.final_step:,} differ."


def _listed(steps: tuple[int, ...]) -> str:
    shown = [f"{step:,}" for step in steps]
    return ", ".join(shown) if len(shown) <= _NAMED else f"{shown[0]}, {shown[1]}, ... {shown[-1]}"


def _lengths(found: Evidence) -> Iterator[str]:
    """Yield a sentence if one run has more steps than the other."""
    short, long = sorted((found.base, found.other), key=_last)
    if _last(short) < _last(long):
        yield (
            f"{short.letter} ends at step {_last(short):,}, {long.letter} at step {_last(long):,}; the later steps of "
            f"{long.letter} are compared with nothing."
        )


def _last(run: ComparedRun) -> int:
    return run.records.last_step if run.until is None else run.until


def _likely(found: Evidence) -> Iterator[str]:
    """Yield a sentence about the settings that can be the cause."""
    names = [f"{one.name} ({one.base} in A, {one.other} in B)" for one in found.affecting]
    if len(names) == 1:
        yield f"The only recorded setting that differs and affects the training is {names[0]}."
    elif not names:
        yield "No recorded setting that affects the training differs."
