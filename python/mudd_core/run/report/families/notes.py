"""A part that needs a checkpoint, and the note in its place where the checkpoint or the text cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mudd_core.run.report.page.elements import text
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section

if TYPE_CHECKING:
    from mudd_core.run.report.families.held_out import HeldOut


def of_checkpoint(title: str, records: Records, body: Callable[[HeldOut], str]) -> Section:
    """The section that `body` makes of the newest checkpoint; a note with the reason where that fails."""
    from mudd_core.run.report.families.held_out import held_out

    try:
        return Section(title, body(held_out(records.folder, records.config)))
    except Exception as error:  # a page of what is there is better than none
        reason = str(error) or type(error).__name__
        return Section(title, text(f"The newest checkpoint was not measured: {reason}.", "note"))
