"""Print the loss spikes of a run, and the sequences of the worst one with the loss of each document."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.show.json_text import json_text
from mudd_core.base.show.printable import beginning_of, visible
from mudd_core.base.show.tables import text_table
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config
from mudd_core.run.build.batch_rows import RowDocument
from mudd_core.run.loop.at_step import cost_of, require_reached
from mudd_core.run.loop.spike_rows import DocumentLoss, RowLoss, losses_by_document
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.spikes import DEVIATIONS, WINDOW, Spike, spikes_in, untested, worst_of
from mudd_core.run.store.metrics import rows_of
from mudd_core.run.store.run_folder import RunFolder

_PATIENCE = 600.0  # seconds of training above which the user has to name the step
_ROWS, _DOCUMENTS = 8, 3  # sequences, and documents of each, that are printed
_WHAT = f"more than {DEVIATIONS:.0f} robust deviations above the median of the {WINDOW} logged steps before"


@dataclass(frozen=True)
class _Shown:
    """The step whose sequences are shown. reason: why they are not; empty if they are. note: what they lack."""

    step: int
    rows: Sequence[RowLoss] = ()
    reason: str = ""
    note: str = ""


def print_spikes(config: Config, folder: RunFolder, asked: str, *, as_json: bool) -> None:
    """Print the spikes and the sequences of the worst one. asked: the step of --spikes=STEP, whose sequences are shown.

    Raise UserError if the sequences of that step cannot be read.
    """
    step = _step(asked) if asked else 0
    require_reached(folder, step, "[arguments] --spikes")
    rows = list(rows_of(folder))
    spikes, why = spikes_in(rows), untested(rows, config.train.log_every)
    if as_json:
        print(json_text("spikes", _values(spikes, _shown(config, folder, spikes, step, says=False), why)))
        return
    have = f"{len(spikes):,} steps have" if len(spikes) > 1 else f"{len(spikes) or 'no'} step has"
    print(visible(f"{config.name} in {folder}: {why or f'{have} a loss {_WHAT}'}"), flush=True)
    table = [["step", "loss", "median", "deviations"]]
    table += [
        [f"{one.step:,}", f"{one.loss:.4f}", f"{one.median:.4f}", f"{one.deviations:.1f}"] for one in spikes
    ]
    for line in text_table(table) if spikes else ():
        print(f"  {line}", flush=True)
    shown = _shown(config, folder, spikes, step, says=True)
    for line in () if shown is None else _lines(shown):
        print(visible(line))


def _shown(
    config: Config, folder: RunFolder, spikes: Sequence[Spike], asked: int, *, says: bool
) -> _Shown | None:
    """Return the sequences of the asked step, or of the worst spike (0); None without spikes."""
    if not asked and not spikes:
        return None
    step = asked or worst_of(spikes).step
    cost = cost_of(config, folder, step - 1)
    if not asked and cost.seconds > _PATIENCE:
        command = shlex.join([*typed_program(), "report", str(folder), f"--spikes={step}"])
        return _Shown(step, reason=f"that trains {cost}; type {command}")
    if says and cost.steps:
        print(f"\nstep {step:,}: training {cost}", flush=True)
    try:
        rows = _rows(folder, step)
        return _Shown(step, rows, note=_lack(config, rows))
    except UserError as error:
        if asked:
            raise
        return _Shown(step, reason=str(error))


def _lack(config: Config, rows: Sequence[RowLoss]) -> str:
    """Return a sentence if the data name none of these documents; empty if they name one."""
    documents = [part.document for row in rows for part in row.documents]
    if any(one.file or one.text or one.number is not None for one in documents):
        return ""
    return f"data.pipeline={config.data.pipeline} has no documents, so its sequences are only known by their sample"


def _step(asked: str) -> int:
    if not asked.isdecimal() or int(asked) < 1:
        raise UserError(
            f"[arguments] --spikes: expected the number of a step, got '{asked}'; type --spikes=STEP"
        )
    return int(asked)


def _rows(folder: RunFolder, step: int) -> list[RowLoss]:
    with Trainer(folder.path, at_step=step - 1, trust_code=folder.trusted) as trainer:
        return losses_by_document(trainer)


def _lines(shown: _Shown) -> Iterator[str]:
    if shown.reason:
        yield f"the sequences of step {shown.step:,} are not shown: {shown.reason}"
        return
    yield f"\nsequences of step {shown.step:,} by their loss before the update:"
    if shown.note:
        yield f"  note: {shown.note}"
    for one in shown.rows[:_ROWS]:
        source = f", source {one.row.source}" if one.row.source is not None else ""
        source += f", {one.row.answer} answers" if one.row.answer is not None else ""
        yield f"  row {one.row.row}, sample {one.row.sample:,}{source}: loss {one.loss:.4f}"
        for part in one.documents[:_DOCUMENTS]:
            yield f"    {_document(part)}"
        if (more := len(one.documents) - _DOCUMENTS) > 0:
            yield f"    and {more} more documents with a lower loss"
    if (more := len(shown.rows) - _ROWS) > 0:
        yield f"  and {more} more sequences with a lower loss (--json prints all)"


def _document(part: DocumentLoss) -> str:
    one = part.document
    name = "a document" if one.number is None else f"document {one.number:,}"
    text = "" if one.text is None else f": {beginning_of(one.text)}"
    name += "" if one.file is None else f" ({_place(one)})"
    return f"{name}, loss {part.loss:.4f} over {one.targets} tokens{text}"


def _place(one: RowDocument) -> str:
    """Return the file of a document, and the place in it as far as it is known."""
    places = (("record", one.record), ("from byte", one.byte), ("from id", one.first_id))
    return ", ".join([str(one.file), *(f"{name} {at:,}" for name, at in places if at is not None)])


def _values(spikes: Sequence[Spike], shown: _Shown | None, why: str) -> JsonObject:
    """Return the object of --json. why: the reason if no step was compared."""
    listed: list[Json] = [asdict(one) for one in spikes]
    found: JsonObject = {"spikes": listed, "step": None, "sequences": [], "reason": why or None}
    if shown is not None:
        rows: list[Json] = [_row_values(one) for one in shown.rows]
        found |= {"step": shown.step, "sequences": rows, "reason": shown.reason or shown.note or None}
    return found


def _row_values(one: RowLoss) -> JsonObject:
    documents: list[Json] = [{**asdict(part.document), "loss": part.loss} for part in one.documents]
    row = one.row
    return {
        "row": row.row,
        "sample": row.sample,
        "source": row.source,
        "answer": row.answer,
        "loss": one.loss,
        "targets": row.targets,
        "documents": documents,
    }
