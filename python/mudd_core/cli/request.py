"""The request that a command line makes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.own_code import TRUST
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import mounts_in

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved

MISSING_CONFIG = "[arguments] --config=FILE is missing, for example --config=small.py"


@dataclass
class Request:
    """A parsed request. config is None without --config, and for commands that read a run.

    resolved: the result for a command of an original program. typed: the arguments of that command. stops: the values
    of --stop, the only option that may be repeated; `options` has the last value.
    """

    command: str = "train"
    config: Config | None = None
    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    source: ConfigSource | None = None
    resolved: Resolved | None = None
    typed: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Lines for the user about arguments without effect in mudd_core."""
        return [] if self.resolved is None else self.resolved.notes

    @property
    def folder(self) -> RunFolder:
        """The work directory: --workdir, or runs/<config name>."""
        named = self.options.get("--workdir")
        if named is None:
            folder = RunFolder.of_config(self.required_config().name)
            return replace(folder, trusted=TRUST in self.options)
        return RunFolder.named(named, self.mounts, trusted=TRUST in self.options)

    @property
    def typed_workdir(self) -> str:
        """The work directory as the user names it: a path, or a URL."""
        return self.options.get("--workdir") or str(self.folder)

    @property
    def mounts(self) -> str:
        """The value of storage.map in the arguments, or else in the config."""
        return mounts_in(self.words) or ("" if self.config is None else self.config.storage.map)

    def required_config(self) -> Config:
        """Return the checked config; raise UserError if there is none."""
        if self.config is None:
            raise UserError(MISSING_CONFIG)
        return self.config
