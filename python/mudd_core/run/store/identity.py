"""The identity of a run: the id and the facts of run.json."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.run.records.facts import SEAL_FACT
from mudd_core.run.store.config_source import MEMBER, ConfigSource
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared


def seal_fact(data: Prepared) -> JsonObject:
    """Return the seal of the token cache for a run's facts; empty if a stream reads the text."""
    from mudd_core.data.streaming.data import StreamData

    return {} if isinstance(data, StreamData) else {SEAL_FACT: data.seal}


def identity(
    folder: RunFolder, saved: Mapping[str, Json], facts: Mapping[str, Json], source: ConfigSource | None
) -> JsonObject:
    """Return the new run.json. Raise UserError if a saved fact differs.

    saved: run.json of an earlier start, empty for a new run. facts: values are None if unknown.
    """
    for name, value in facts.items():
        if name in saved and saved[name] != value:
            raise UserError(
                f"[resume] {folder} was made with another {name}: saved {saved.get(name)!r}, "
                f"now {value!r}. Bring the old one back, or give another --workdir."
            )
    fresh = {"run_id": secrets.token_hex(8), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    known = {name: value for name, value in facts.items() if value is not None}
    # An imported run has its facts only after the first start.
    return {**(saved or fresh), **known, **({} if source is None else {MEMBER: source.to_dict()})}
