"""Names of the facts in run.json that the data of a run have."""

from __future__ import annotations

DATA_FACT = "data"  # the fingerprint of the token cache
SEAL_FACT = "data_seal"  # the seal of the token cache
