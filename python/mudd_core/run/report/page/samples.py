"""The section of the texts that a run wrote at validations."""

from __future__ import annotations

import numpy as np

from mudd_core.run.report.page.elements import folded, preformatted, text
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section
from mudd_core.run.store.metrics import samples_of

MOST = 24  # texts of a page, evenly spaced up to the last
MOST_CHARACTERS = 8_000  # of a text


def samples(records: Records) -> Section | None:
    """The last text, and earlier ones folded; None for a run without sample.every."""
    found = samples_of(records.folder)
    if not found:
        return None
    places = sorted(
        {round(place) for place in np.linspace(0, len(found) - 1, min(MOST, len(found))).tolist()}
    )
    parts: list[str] = []
    for place in reversed(places):
        sample = found[place]
        written = preformatted((sample.prompt + sample.text)[:MOST_CHARACTERS])
        title = f"Step {sample.step:,}"
        parts.append(folded(title, written) if parts else text(title) + written)
    return Section("Samples of text", "".join(parts))
