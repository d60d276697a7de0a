"""The first value that differs, as a part with sentences and for --json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mudd_core.base.types import JsonObject
from mudd_core.fingerprint import Difference
from mudd_core.fingerprint.lines import COMPUTED
from mudd_core.run.build.base import BASE_FACT
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.compared import ComparedRun, first_difference
from mudd_core.tools.compare.parts import show_command
from mudd_core.tools.diff.evidence import Evidence
from mudd_core.tools.diff.other_bits import bits_notes
from mudd_core.tools.diff.replay import Replay
from mudd_core.tools.diff.ulps_text import ulps_text
from mudd_core.tools.diff.unexplained import notes_of_equal, title_of_equal

_ROWS = 5  # sequences that a sentence names
_HASH = 16  # characters of a hash


def node_part(seen: Evidence, found: Replay) -> Part:
    """Return the part about the first value that differs, in steps that were replayed here."""
    runs = (seen.base, seen.other)
    bases = _bases(runs)
    notes = [_made(found), *bits_notes(runs)]
    if found.forms:
        if bases:
            return Part("the runs have other bases", (), [bases, *notes])
        title = f"step {found.step:,} has values of other shapes"
        return Part(title, (), [f"In step {found.step:,} {found.forms}.", *notes])
    if found.difference is None:
        return Part(title_of_equal(seen, found), (), [*notes_of_equal(seen, found), *notes])
    title = f"first value that differs: in step {found.step:,}, {_what(found, found.difference)}"
    lines = [*_other_graph(found), *_lines(seen, found, found.difference), *_data(seen, found)]
    if bases and found.difference.stage == "state":
        return Part("the runs have other bases", (), [bases, f"The {title}:", *lines, *notes])
    return Part(title, (), [*lines, *notes])


def precision_part(seen: Evidence) -> Part | None:
    """Return a part if the runs have different precisions, so that all values differ by rounding; else None."""
    one, two = (run.records.config.train.precision for run in (seen.base, seen.other))
    if one == two:
        return None
    text = (
        f"A computes in {one}, B in {two}, so their values differ by rounding from the first op on. From Python, "
        "mc.first_difference(a, b, batch, ulp=64) names the first value that differs by more (docs/inside.md)."
    )
    return Part("the runs have other precisions", (), [text])


def _bases(runs: Sequence[ComparedRun]) -> str:
    """Return a sentence if the runs train adapters of other weights; empty if they do not."""
    one, two = (run.records.facts.get(BASE_FACT) for run in runs)
    if not isinstance(one, str) or not isinstance(two, str) or one == two:
        return ""
    return (
        f"Their frozen weights are from other bases: {BASE_FACT} is {one[:_HASH]} in A and {two[:_HASH]} in B. Runs on "
        "one base can be compared value by value."
    )


def _what(found: Replay, node: Difference) -> str:
    """Return the place of the difference: the value, or the ops that only one run has before it."""
    left, right = found.alone
    if left is None or right is None:
        return node.title
    return f"{left.title()} in A, {right.title()} in B"


def _lines(seen: Evidence, made: Replay, found: Difference) -> Iterator[str]:
    index = f" at [{', '.join(map(str, found.first_index))}]" if found.first_index else ""
    for label, text in (
        ("op", _ops(made, found) if found.stage in COMPUTED else ""),
        ("place", found.place or "the whole step"),
        ("pass", found.stage if found.stage in COMPUTED else ""),
        ("type", f"{found.dtype} [{', '.join(map(str, found.shape))}]"),
        ("elements", f"{found.count:,} of {found.size:,} differ"),
        ("first", f"{found.values[0]:.9g} in A, {found.values[1]:.9g} in B{index}"),
        ("largest", "" if found.stage == "data" else ulps_text(found.ulps)),
        ("loss", _loss(seen, found, made.step)),
    ):
        if text:
            yield f"  {label:<9} {text}"


def _ops(made: Replay, found: Difference) -> str:
    return f"{found.op} in A, {made.other_op} in B" if made.other_op else found.op


def _loss(seen: Evidence, found: Difference, step: int) -> str:
    """Return how far the difference has grown at the loss of the step, or at the first logged loss that differs."""
    one, two = found.losses
    if one != two:
        return f"relative difference {found.loss_growth:.2g}: {one!r} in A, {two!r} in B"
    text = f"equal in step {step:,}"
    later = first_difference(seen.base, seen.other, ["loss"])
    if later.step is None or later.step <= step:
        return text
    left, right = later.values[0].base, later.values[0].other
    if left is None or right is None:
        return text
    growth = abs(left - right) / max(abs(left), abs(right), 1e-300)
    return f"{text}, relative difference {growth:.2g} in step {later.step:,}"


def _data(seen: Evidence, found: Replay) -> Iterator[str]:
    """Yield the sequences of the batch that differ, and the commands that print them."""
    if not found.rows:
        return
    more = len(found.rows) - _ROWS
    named = ", ".join(map(str, found.rows[:_ROWS])) + (f" and {more:,} more" if more > 0 else "")
    yield f"The batch has other ids in sequence {named} (from 0)."
    if seen.logged.batch_step == found.step:  # the commands were printed above
        return
    for run in (seen.base, seen.other):
        yield show_command(run, found.step)


def _made(found: Replay) -> str:
    start = found.start
    state = f"the equal checkpoints of step {start.step:,}" if start.common else f"step {start.step:,}"
    if start.step == 0 and not start.common:
        state = "the initial weights"
    steps = f"Step {found.step:,} of both runs was"
    if found.step > start.step + 1:
        steps = f"Steps {start.step + 1:,} to {found.step:,} of both runs were"
    text = f"{steps} replayed here, from {state}."
    if found.difference is None:
        return text
    if any(found.alone):
        return f"{text} All earlier values that both have are equal."
    inputs = ", so the inputs of its op are equal" if found.difference.stage in COMPUTED else ""
    return f"{text} All values before this one are equal{inputs}."


def _other_graph(found: Replay) -> Iterator[str]:
    """Yield a sentence about values that only one run computes before the first one that differs."""
    pairs = zip("AB", found.alone, strict=True)
    texts = [f"{letter} alone has {line.title()}" for letter, line in pairs if line is not None]
    if texts:
        yield f"The runs compute other values: {', and '.join(texts)}. The first value that both have and that differs:"


def node_values(found: Replay) -> JsonObject:
    """Return the result for --json."""
    node = found.difference
    return {
        "start": found.start.step,
        "step": found.step,
        "forms": found.forms or None,
        "rows": list(found.rows),
        "alone": [None if line is None else line.title() for line in found.alone],
        "node": None if node is None else difference_values(node),
        "reproduced": [
            {"letter": one.letter, "equal": one.equal, "step": one.logged} for one in found.reproduced
        ],
    }


def difference_values(node: Difference) -> JsonObject:
    """Return a difference for --json."""
    return {
        "op": node.op,
        "stage": node.stage,
        "place": node.place,
        "value": node.value,
        "shape": list(node.shape),
        "dtype": node.dtype,
        "elements": node.count,
        "first_index": list(node.first_index),
        "a": node.values[0],
        "b": node.values[1],
        "ulps": node.ulps,
        "loss_a": node.losses[0],
        "loss_b": node.losses[1],
    }
