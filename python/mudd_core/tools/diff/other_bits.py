"""Why the steps of a run have other bits in this process."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mudd_core.base.surroundings import typed_program
from mudd_core.run.records.facts import BF16_UNIT, SINCE, bf16_unit, bits_facts, change_of_bits
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.settings import uneven_ranks


def other_bits(run: ComparedRun) -> str:
    """Return why the steps of a run have other bits when this process replays them; empty if they do not."""
    config, facts = run.records.config, run.records.facts
    if ranks := uneven_ranks(run):
        return f"with mesh.any_world its bits depend on its {ranks} ranks"
    _, note = change_of_bits(facts, bits_facts(config.train.precision, config.mesh.wire), 1)
    since = facts.get(SINCE)
    return note.partition(": ")[2] or ("" if since is None else f"it had other bits up to step {since}")


def bits_notes(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield sentences about runs of several ranks, which one process replays, and about runs with other bits."""
    others = {run.letter: why for run in runs if (why := other_bits(run))}
    worlds = {run.letter: ranks for run in runs if (ranks := _world(run)) > 1 and run.letter not in others}
    if worlds:
        named = " and ".join(f"{letter} by {ranks}" for letter, ranks in worlds.items())
        yield f"Several ranks trained {named}; here one process does. The bits do not depend on the ranks."
    for letter, why in others.items():
        yield f"The steps of {letter} have other bits here than in the run: {why}."


def _world(run: ComparedRun) -> int:
    ranks = (
        event.get("ranks", 1) for event in run.records.events if event["event"] in ("started", "resumed")
    )
    return max((count for count in ranks if isinstance(count, int)), default=1)


def record_commands(runs: Sequence[ComparedRun], step: int) -> Iterator[str]:
    """Yield commands that compare records of a step of two runs with other bf16 instructions; none for other runs."""
    units = [run.records.facts.get(BF16_UNIT) for run in runs]
    if not all(isinstance(unit, str) for unit in units) or units[0] == units[1]:
        return
    yield "Records of the step can be compared, each made with the bf16 instructions of its run:"
    files = [f"{run.letter.lower()}.jsonl" for run in runs]
    for run, unit, file in zip(runs, units, files, strict=True):
        cap = "" if unit == bf16_unit() else f"MUDD_MAX_ISA={'avx512' if unit == 'none' else unit} "
        words = ["diff", "--record", run.typed, f"--step={step}", f"--to={file}"]
        yield f"  {cap}{shlex.join([*typed_program(), *words])}"
    yield f"  {shlex.join([*typed_program(), 'diff', *files])}"
