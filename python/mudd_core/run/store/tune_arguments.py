"""The arguments of fine-tuning.

They are stored in the run's folder, so that a model card can show the whole command.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mudd_core.base.members import object_in
from mudd_core.config import Config, apply_overrides, from_dict, split_words
from mudd_core.config.fields import Scalar, walk
from mudd_core.run.store.json_files import read_object, write_json
from mudd_core.run.store.resumed_config import PLACES
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True)
class TuneArguments:
    """The values of --base, --data and --adapter (empty: none), and the overrides.

    base_sha256: hash of the base's weights.
    """

    base: str
    data: str
    adapter: str
    overrides: list[str]
    base_sha256: str = ""

    def keep(self, run: RunFolder) -> None:
        """Write the arguments into the folder of a new run; raise SaveError if that fails."""
        write_json(run.arguments_file, asdict(self))

    @classmethod
    def of(cls, run: RunFolder) -> TuneArguments | None:
        """Return the arguments of a run; None if they are not stored, as in older versions."""
        raw = object_in(run.arguments_file)
        base, data, adapter = (raw.get(name) for name in ("base", "data", "adapter"))
        overrides = raw.get("overrides")
        if not (isinstance(base, str) and isinstance(data, str) and isinstance(adapter, str)):
            return None
        given = [word for word in overrides if isinstance(word, str)] if isinstance(overrides, list) else []
        sha256 = raw.get("base_sha256")
        return cls(base, data, adapter, given, sha256 if isinstance(sha256, str) else "")

    @property
    def options(self) -> list[str]:
        """The options --base, --data and --adapter; only the last part of an absolute path is shown."""
        named = {"--base": self.base, "--data": self.data, "--adapter": self.adapter}
        return [f"{name}={_on_any_machine(value)}" for name, value in named.items() if value]

    def fields(self, run: RunFolder, config: Config) -> list[str]:
        """Return the overrides with which such a command repeats the run. config: the current config of the run."""
        return [f"{path}={field_text(value)}" for path, value in self._fields(run, config)]

    def _fields(self, run: RunFolder, config: Config) -> Iterator[tuple[str, Scalar]]:
        """Yield the fields of the command with their current values, and fields that a later start has changed."""
        kept = from_dict(read_object(run.asked_file))
        overrides = split_words(self.overrides, kept)
        typed = {info.path: info.value for info in walk(apply_overrides(kept, overrides))}
        before = {info.path: info.value for info in walk(kept)}
        now = {info.path: info for info in walk(config)}
        paths = dict.fromkeys(item.path for item in overrides if item.path in now)
        for path in paths:
            value = now[path].value
            # For example train.stop_at, if the run is already past it.
            if not (now[path].free_on_resume and value == before.get(path) != typed[path]):
                yield path, value
        for path, info in now.items():
            if path not in paths and path not in PLACES and info.value != before.get(path):
                yield path, info.value


def field_text(value: Scalar) -> str:
    """Return a value as a user types it, with all digits; for an absolute path, only the last part."""
    return _on_any_machine(value) if isinstance(value, str) else str(value).lower()


def _on_any_machine(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name
