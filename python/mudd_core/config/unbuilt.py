"""Fields that exist for the commands of the original programs and are not built yet: other values are refused."""

from __future__ import annotations

from mudd_core.config.fields import walk
from mudd_core.config.schema import Config

# One a line: two changes of neighbours are no conflict.
_UNBUILT = frozenset(
    {
        "train.epochs",
    }
)
_DEFAULTS = {info.path: info.value for info in walk(Config()) if info.path in _UNBUILT}


def unbuilt_faults(config: Config) -> list[str]:
    """One message for each such field that is set."""
    faults = [
        f"{info.path}={info.value} is not built yet; leave it at {_DEFAULTS[info.path]!r}"
        for info in walk(config)
        if info.path in _DEFAULTS and info.value != _DEFAULTS[info.path]
    ]
    if config.data.cache == "stream":
        faults.append("data.cache=stream is not built yet; take full, which tokenizes everything first")
    return faults
