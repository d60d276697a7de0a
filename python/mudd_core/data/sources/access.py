"""How far a config lets its names reach: the hub over the network, buckets by their mounts or through local copies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import url_fault
from mudd_core.base.storage import mapped
from mudd_core.config import Config
from mudd_core.data.sources.remote import local_copy


def require_local(name: str, value: str) -> None:
    """UserError where a setting of data is a URL."""
    if (fault := url_fault(value)) is not None:
        raise UserError(f"[data.{name}] {fault}")


def local_root(cache_dir: str) -> Path:
    """The folder of the token caches that data.cache_dir names; UserError for a URL."""
    require_local("cache_dir", cache_dir)
    return Path(cache_dir or "runs/cache").resolve()  # it may be a link to another disk


def cache_root(config: Config) -> Path:
    """The same with storage.map applied; UserError for a URL that stays one."""
    return local_root(mapped(config.data.cache_dir, config.storage.map))


@dataclass(frozen=True)
class Access:
    """online: hub names may be fetched. mounts: storage.map as it is written. root: folder of the caches.

    again: copies that are there are taken as they are, as a run that goes on does.
    """

    online: bool = False
    mounts: str = ""
    root: Path = Path("runs/cache")
    again: bool = False

    @classmethod
    def of(cls, config: Config, *, again: bool = False) -> Access:
        """As the config says."""
        return cls(config.hub.online, config.storage.map, cache_root(config), again)

    def local(self, text: str, argument: str) -> str:
        """A path, or for a URL that of its local copy; several with commas. UserError where it cannot be read."""
        if "://" not in text:
            return text
        parts = (
            local_copy(part.strip(), self.mounts, self.root, argument, self.again) for part in text.split(",")
        )
        return ",".join(parts)


LOCAL = Access()
