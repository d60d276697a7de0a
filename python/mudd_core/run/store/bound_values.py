"""Values that a run stores as they take effect (Config.bound_fields), and runs of versions that let them change."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, differences
from mudd_core.config.fields import replace_path

MEMBER = "bound_fields"  # in run.json; absent in runs of earlier versions


def bound_facts(config: Config) -> JsonObject:
    """Return what run.json of a new run says of the fields that its config binds."""
    return {MEMBER: list(config.bound_fields)} if config.bound_fields else {}


def with_earlier_values(asked: Config, saved: Config, facts: Mapping[str, Json]) -> Config:
    """Return the asked config; of a run of an earlier version, with the saved values of bound fields and a note.

    Earlier versions let a resume change them, so the command of such a run need not name the saved value.
    facts: run.json.
    """
    if MEMBER in facts or not saved.bound_fields:
        return asked
    for change in differences(saved, asked):
        if change.path in saved.bound_fields and change.saved is not None:
            print(
                f"note: {change.path} stays {change.saved}: with loss.normalize={saved.loss.normalize} it is part of "
                f"the training; for {change.asked} start a new run with another --workdir",
                file=sys.stderr,
            )
            asked = replace_path(asked, change.path, change.saved)
    return asked
