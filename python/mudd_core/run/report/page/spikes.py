"""The section of a page about loss spikes."""

from __future__ import annotations

from mudd_core.run.report.page.elements import Section, table, text
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.spikes import DEVIATIONS, WINDOW, spikes_of

_MOST = 20


def spikes(records: Records) -> Section | None:
    """Return the section with the loss spikes of a run, the worst first; None if it has none."""
    updates = records.updates
    found = spikes_of(updates["step"], updates["loss"]) if "loss" in updates else []
    if not found:
        return None
    worst = sorted(found, key=lambda one: -one.deviations)[:_MOST]
    rows = [
        (f"{one.step:,}", f"{one.loss:.4f}", f"{one.median:.4f}", f"{one.deviations:.1f}") for one in worst
    ]
    rule = (
        f"more than {DEVIATIONS:.0f} robust deviations above the median of the {WINDOW} logged steps before"
    )
    note = text(f"The loss of these steps is {rule}.")
    if len(found) > _MOST:
        note += text(f"The table has the worst {_MOST} of {len(found):,}.")
    note += text("The command report RUN --spikes shows the sequences of the worst one.")
    return Section("Loss spikes", note + table(rows, ("step", "loss", "median", "deviations"), "numbers"))
