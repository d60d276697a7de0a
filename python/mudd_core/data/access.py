"""How far a config lets its names reach: the hub over the network, buckets through folders that they are mounted at."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.config import Config


@dataclass(frozen=True)
class Access:
    """online: hub names may be fetched. mounts: storage.map as it is written."""

    online: bool = False
    mounts: str = ""

    @classmethod
    def of(cls, config: Config) -> Access:
        """As the config says."""
        return cls(config.hub.online, config.storage.map)


LOCAL = Access()
