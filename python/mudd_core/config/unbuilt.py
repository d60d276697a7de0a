"""Values that exist for the commands of the original programs and are not built yet: they are refused."""

from __future__ import annotations

from mudd_core.config.schema import Config


def unbuilt_faults(config: Config) -> list[str]:
    """One message for each such field that is set."""
    if config.data.cache == "stream":
        return ["data.cache=stream is not built yet; take full, which tokenizes everything first"]
    return []
