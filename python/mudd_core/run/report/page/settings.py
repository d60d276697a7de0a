"""The section of the config: first what differs from the family's defaults, then all of it, folded."""

from __future__ import annotations

from mudd_core.config import Config, differences
from mudd_core.config.describe import listing, shown
from mudd_core.config.fields import walk
from mudd_core.run.report.page.elements import folded, preformatted, table, text
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section


def settings(records: Records) -> Section:
    """What the run was asked for."""
    config = records.config
    defaults = Config(model=type(config.model)())
    meanings = {info.path: info.text for info in walk(config)}
    changed = [
        (one.path, _value(one.asked), _value(one.saved), meanings.get(one.path, ""))
        for one in differences(defaults, config)
    ]
    family = config.model.family
    first = (
        table(changed, ("field", "value", f"default of {family}", "meaning"), "settings")
        if changed
        else text(f"All fields have the defaults of the family {family}.")
    )
    return Section("Config", first + folded("The whole config", preformatted(listing(config))))


def _value(value: bool | int | float | str | None) -> str:
    return "" if value is None else shown(value)
