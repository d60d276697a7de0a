"""Names of the facts in run.json that the data of a run have."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import Json

DATA_FACT = "data"  # the fingerprint of the token cache
SEAL_FACT = "data_seal"  # the seal of the token cache


def data_fingerprint(facts: Mapping[str, Json]) -> str:
    """Return the fingerprint of the token cache; empty if the facts have none."""
    found = facts.get(DATA_FACT)
    return found if isinstance(found, str) else ""
